from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from h2.errors import ErrorCodes

from tests.fetching.conftest import HERE
from tests.fetching.h2_server import H2Server, Speaker
from tests.fetching.hostile import bomb
from tests.fetching.raw_server import RawServer, page
from tests.servers.certificate import self_signed
from tests.waiting import eventually
from weft.address_guard import Guard
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    made = Egress(Guard(HERE), user_agent="weft-tests", verify_tls=False)
    yield made
    await made.close()


def good(speaker: Speaker, stream: int) -> None:
    speaker.answer(stream, b"good")


async def test_an_exchange_over_http2_reads_as_one_over_http1(egress: Egress, tmp_path: Path) -> None:
    raw = gzip.compress(b"page" * 1000)

    def answer(speaker: Speaker, stream: int) -> None:
        speaker.answer(stream, raw, ("content-encoding", "gzip"), ("set-cookie", "a=1"), ("set-cookie", "b=2"))

    async with H2Server(tmp_path, {"/p?q=1": answer}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url("/p?q=1"), headers=(("X-Mine", "yes"),)))
    assert (exchange.status, exchange.http, exchange.body) == (200, "2", b"page" * 1000)
    assert exchange.raw_body == raw
    assert exchange.headers[1:] == [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\r\n"
    assert exchange.head == head
    assert exchange.request.startswith(b"GET /p?q=1 HTTP/1.1\r\n")


async def test_many_requests_share_one_connection(egress: Egress, tmp_path: Path) -> None:
    async with H2Server(tmp_path, {"/": good}) as server:
        exchanges = await asyncio.gather(*(egress.fetch(FetchRequest(url=server.url())) for _ in range(150)))
        assert {each.body for each in exchanges} == {b"good"}
        assert len(server.speakers) == 1


async def test_a_large_body_comes_whole(egress: Egress, tmp_path: Path) -> None:
    body = bytes(range(256)) * 20_000
    async with H2Server(tmp_path, {"/": lambda speaker, stream: speaker.answer(stream, body)}) as server:
        exchanges = await asyncio.gather(*(egress.fetch(FetchRequest(url=server.url())) for _ in range(3)))
    assert all(each.body == body for each in exchanges)


async def test_a_large_body_is_sent(egress: Egress, tmp_path: Path) -> None:
    async with H2Server(tmp_path, {"/": good}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url(), method="POST", body=b"x" * 300_000))
    assert exchange.body == b"good"


def endless_data(speaker: Speaker, stream: int) -> None:
    speaker.answer(stream, b"x" * (6 << 20))


def a_bomb(speaker: Speaker, stream: int) -> None:
    speaker.answer(stream, bomb(500), ("content-encoding", "gzip"))


def too_many_headers(speaker: Speaker, stream: int) -> None:
    speaker.answer(stream, b"", *(("x-header", "v") for _ in range(300)))


def too_large_headers(speaker: Speaker, stream: int) -> None:
    speaker.answer(stream, b"", *(("x-header", "v" * 5_000) for _ in range(100)))


def endless_pings(speaker: Speaker, stream: int) -> None:
    for _ in range(2_000):
        speaker.h2.ping(b"12345678")


def empty_frames(speaker: Speaker, stream: int) -> None:
    speaker.h2.send_headers(stream, [(":status", "200")])
    for _ in range(8_000):
        speaker.h2.send_data(stream, b"")


def reset(speaker: Speaker, stream: int) -> None:
    speaker.h2.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)


def garbage(speaker: Speaker, stream: int) -> None:
    speaker.transport.write(bytes(range(256)) * 10)


def silence(speaker: Speaker, stream: int) -> None:
    pass


def half(speaker: Speaker, stream: int) -> None:
    speaker.h2.send_headers(stream, [(":status", "200"), ("content-length", "100")])
    speaker.h2.send_data(stream, b"half")
    speaker.flush()
    speaker.transport.close()


def wrong_length(speaker: Speaker, stream: int) -> None:
    speaker.answer(stream, b"longer than it says", ("content-length", "3"))


def endless_interim(speaker: Speaker, stream: int) -> None:
    for _ in range(100):
        speaker.h2.send_headers(stream, [(":status", "103")])


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (endless_data, "too_large"),
        (a_bomb, "too_large"),
        (too_many_headers, "headers"),
        (too_large_headers, "protocol"),
        (endless_pings, "protocol"),
        (empty_frames, "protocol"),
        (reset, "cut"),
        (garbage, "protocol"),
        (silence, "deadline"),
        (half, "cut"),
        (wrong_length, "protocol"),
        (endless_interim, "protocol"),
    ],
)
async def test_a_hostile_answer_over_http2_ends_with_its_reason(
    egress: Egress, tmp_path: Path, behaviour: Callable[[Speaker, int], None], kind: str
) -> None:
    async with H2Server(tmp_path, {"/": behaviour, "/good": good}) as server:
        deadline = 0.3 if kind == "deadline" else 60.0
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url=server.url(), deadline_seconds=deadline, largest_body=4 << 20))
        assert caught.value.kind == kind, str(caught.value)
        assert (await egress.fetch(FetchRequest(url=server.url("/good")))).body == b"good"


def refused_once() -> Callable[[Speaker, int], None]:
    refused: list[int] = []

    def answer(speaker: Speaker, stream: int) -> None:
        if not refused:
            refused.append(stream)
            speaker.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
        else:
            speaker.answer(stream, b"good")

    return answer


def gone_away_once() -> Callable[[Speaker, int], None]:
    gone: list[int] = []

    def answer(speaker: Speaker, stream: int) -> None:
        if not gone:
            gone.append(stream)
            speaker.h2.close_connection(last_stream_id=0)
        else:
            speaker.answer(stream, b"good")

    return answer


@pytest.mark.parametrize("make", [refused_once, gone_away_once])
async def test_a_request_that_the_server_did_not_take_is_sent_again(
    egress: Egress, tmp_path: Path, make: Callable[[], Callable[[Speaker, int], None]]
) -> None:
    async with H2Server(tmp_path, {"/": make()}) as server:
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == b"good"
        assert server.requests == ["/", "/"]


async def test_who_gives_up_ends_the_stream_and_leaves_the_others(egress: Egress, tmp_path: Path) -> None:
    async with H2Server(tmp_path, {"/": good, "/silence": silence}) as server:
        await egress.fetch(FetchRequest(url=server.url()))
        waiting = asyncio.create_task(egress.fetch(FetchRequest(url=server.url("/silence"))))
        await eventually(lambda: "/silence" in server.requests)
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == b"good"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == b"good"
        assert len(server.speakers) == 1


async def test_http2_is_spoken_only_where_it_is_wanted(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path, "localhost"))
    context.set_alpn_protocols(["h2", "http/1.1"])
    egress = Egress(Guard(HERE), user_agent="weft-tests", verify_tls=False, http2=False)
    async with RawServer({"/": page(b"older")}, context) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url()))
    assert (exchange.body, exchange.http) == (b"older", "1.1")
    await egress.close()
