from __future__ import annotations

import asyncio
import gc
import gzip
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fetching.conftest import HERE
from tests.fetching.raw_server import Close, RawServer, Reset, page
from tests.waiting import eventually
from weft.address_guard import Guard
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest, cache_validators, conditional_headers
from weft.fetching.transfer import ResponseReader

TEXT = b"<title>weft</title>" * 500


async def test_an_exchange_is_what_was_sent_and_what_came(egress: Egress) -> None:
    answer = b"HTTP/1.1 200 Fine\r\nContent-Type: text/html\r\nX-Mixed-Case: Kept\r\nContent-Length: 2\r\n\r\nhi"
    async with RawServer({"/a?b=1": answer}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url("/a?b=1"), headers=(("X-Mine", "yes"),)))
        assert server.requests == [exchange.request]
    assert exchange.status == 200
    assert exchange.head == answer[:-2]
    assert exchange.header(b"x-mixed-case") == b"Kept"
    assert (exchange.body, exchange.raw_body, exchange.http) == (b"hi", b"hi", "1.1")
    assert (exchange.address, exchange.received_bytes) == ("127.0.0.1", len(answer))
    lines = exchange.request.decode().lower().split("\r\n")
    assert lines[0] == "get /a?b=1 http/1.1"
    assert f"host: 127.0.0.1:{server.port}" in lines
    assert {"x-mine: yes", "user-agent: weft-tests", "accept-encoding: gzip, deflate"} <= set(lines)


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        (b"gzip", gzip.compress(TEXT)),
        (b"x-gzip", gzip.compress(TEXT) + b"\x00rest that is none"),
        (b"gzip", gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
        (b"gzip", gzip.compress(TEXT[: len(TEXT) // 2]) + gzip.compress(TEXT[len(TEXT) // 2 :])),
        (b"gzip", gzip.compress(TEXT) + b"rest that is none"),
        (b"deflate", zlib.compress(TEXT)),
        (b"deflate", zlib.compress(TEXT)[2:-4]),
        (b"gzip, deflate", zlib.compress(gzip.compress(TEXT))),
        (b"identity", TEXT),
        (b"GZip", gzip.compress(TEXT)),
    ],
    ids=[
        *(
            "gzip",
            "x-gzip and a rest",
            "two members",
            "two halves",
            "a rest",
            "zlib",
            "bare deflate",
            "one in the other",
        ),
        *("identity", "capitals"),
    ],
)
async def test_a_body_is_kept_as_it_came_and_decompressed(egress: Egress, encoding: bytes, raw: bytes) -> None:
    async with RawServer({"/": page(raw, b"Content-Encoding: " + encoding)}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url()))
    assert (exchange.raw_body, exchange.body) == (raw, TEXT)


async def test_a_large_body_is_decompressed_while_it_comes(egress: Egress) -> None:
    text = b"".join(b"%d " % (number * 7919) for number in range(400_000))
    raw = gzip.compress(text, 1)
    assert len(raw) > 1 << 20
    async with RawServer({"/": page(raw, b"Content-Encoding: gzip")}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url()))
    assert exchange.body == text


async def test_chunks_are_put_together(egress: Egress) -> None:
    chunks = b"4;ext=1\r\nwarp\r\n6\r\n, weft\r\n0\r\nX-Trailer: late\r\n\r\n"
    async with RawServer({"/": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url()))
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == exchange.body == b"warp, weft"
        assert server.connections == 1
    assert exchange.header(b"x-trailer") == b""


@pytest.mark.parametrize("size", [3, 100, 5_000, 70_000])
@pytest.mark.parametrize("compressed", [False, True])
async def test_a_body_is_whole_however_it_is_cut(egress: Egress, size: int, compressed: bool) -> None:
    text = b"".join(b"%d " % (number * 7919) for number in range(20_000))
    raw = gzip.compress(text) if compressed else text
    chunks = b"".join(
        b"%x \r\n%b\r\n" % (len(raw[at : at + size]), raw[at : at + size]) for at in range(0, len(raw), size)
    )
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + b"Content-Encoding: gzip\r\n" * compressed
    async with RawServer({"/": head + b"\r\n" + chunks + b"0\r\n\r\n"}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url()))
    assert (exchange.raw_body, exchange.body) == (raw, text)


async def until_the_end(request: bytes) -> AsyncIterator[bytes]:
    yield b"HTTP/1.0 200 OK\r\n\r\nall that comes"
    raise Close


async def test_a_body_without_a_length_is_all_that_comes(egress: Egress) -> None:
    async with RawServer({"/": until_the_end}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url()))
    assert (exchange.body, exchange.http) == (b"all that comes", "1.0")


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_an_answer_that_has_no_body_leaves_the_connection_in_order(egress: Egress, status: bytes) -> None:
    nothing = b"HTTP/1.1 %b\r\nContent-Length: 99999999999\r\n\r\n" % status
    async with RawServer({"/none": nothing, "/": page(b"next")}) as server:
        assert (await egress.fetch(FetchRequest(url=server.url("/none")))).body == b""
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == b"next"
        assert server.connections == 1


async def test_head_has_no_body_whatever_its_length_says(egress: Egress) -> None:
    async with RawServer({"/": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url(), method="HEAD"))
    assert (exchange.status, exchange.body) == (200, b"")


async def test_an_answer_may_come_after_a_few_that_are_none(egress: Egress) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    async with RawServer({"/": early * 3 + page(b"real")}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url()))
    assert (exchange.status, exchange.body, exchange.header(b"link")) == (200, b"real", b"")
    assert exchange.head.startswith(b"HTTP/1.1 200")


async def test_a_body_is_sent(egress: Egress) -> None:
    async with RawServer({"/": page(b"thanks")}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url(), method="POST", body=b"weft" * 100_000))
        assert server.requests[0].endswith(b"\r\n\r\n" + b"weft" * 100_000)
    assert exchange.sent_bytes == len(exchange.request) + 400_000


async def test_one_connection_serves_one_request_after_the_other(egress: Egress) -> None:
    async with RawServer({"/": page(b"page")}) as server:
        for _ in range(20):
            await egress.fetch(FetchRequest(url=server.url()))
        assert server.connections == 1


async def test_a_host_gets_no_more_connections_than_it_may() -> None:
    egress = Egress(Guard(HERE), user_agent="weft-tests", connections_per_host=3)
    async with RawServer({"/": page(b"page")}) as server:
        fetched = await asyncio.gather(*(egress.fetch(FetchRequest(url=server.url())) for _ in range(30)))
        assert {each.status for each in fetched} == {200}
        assert server.connections <= 3
        await egress.close()
        await eventually(lambda: server.open == 0)


class Loopback:
    """Every name is this machine."""

    async def resolve(self, host: str, port: int) -> list[str]:
        return ["127.0.0.1"]


@pytest.mark.parametrize("limit", ["connections", "idle_connections"])
async def test_idle_connections_make_room_for_other_hosts(limit: str) -> None:
    egress = Egress(Guard(HERE), user_agent="weft-tests", resolver=Loopback(), **{limit: 3})  # type: ignore[arg-type]
    async with RawServer({"/": page(b"page")}) as server:
        for number in range(10):
            assert (await egress.fetch(FetchRequest(url=f"http://host{number}.example:{server.port}/"))).body == b"page"
        await eventually(lambda: server.open == egress.connections == 3)
        await egress.fetch(FetchRequest(url=f"http://host9.example:{server.port}/"))
        assert server.connections == 10, "those that were used last are kept"
        await asyncio.gather(
            *(egress.fetch(FetchRequest(url=f"http://host{n}.example:{server.port}/")) for n in range(20))
        )
        await eventually(lambda: server.open == egress.connections == 3)
    await egress.close()


async def test_an_idle_connection_keeps_nothing_of_what_it_brought(egress: Egress) -> None:
    async with RawServer({"/": page(gzip.compress(TEXT), b"Content-Encoding: gzip")}) as server:
        await egress.fetch(FetchRequest(url=server.url()))
        assert egress.connections == 1
        await asyncio.sleep(0)  # until then this task is being woken by the answer
        gc.collect()
        assert [each for each in gc.get_objects() if isinstance(each, ResponseReader)] == []


async def test_a_connection_that_nobody_wants_ends() -> None:
    egress = Egress(Guard(HERE), user_agent="weft-tests", idle_seconds=0.05)
    async with RawServer({"/": page(b"page")}) as server:
        await egress.fetch(FetchRequest(url=server.url()))
        await eventually(lambda: server.open == 0)
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == b"page"
    await egress.close()


def dying_after_the_first(how: type[Exception]) -> RawServer:
    """Each connection answers one request and dies at the second before it says a word."""
    seen: set[asyncio.Task[None] | None] = set()

    async def answer(request: bytes) -> AsyncIterator[bytes]:
        task = asyncio.current_task()
        if task in seen:
            raise how
        seen.add(task)
        yield page(b"page")

    return RawServer({"/": answer})


@pytest.mark.parametrize("how", [Close, Reset])
async def test_a_request_is_sent_again_where_a_kept_connection_had_died(egress: Egress, how: type[Exception]) -> None:
    async with dying_after_the_first(how) as server:
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == b"page"
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == b"page"
        assert server.connections == 2


async def test_what_may_not_happen_twice_is_not_sent_again(egress: Egress) -> None:
    async with dying_after_the_first(Close) as server:
        await egress.fetch(FetchRequest(url=server.url()))
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url=server.url(), method="POST", body=b"pay"))
        assert len(server.requests) == 2
    assert caught.value.kind == "cut"


async def test_words_that_nobody_asked_for_answer_no_later_request(egress: Egress) -> None:
    async with RawServer({"/": page(b"first") + page(b"poison"), "/next": page(b"next")}) as server:
        assert (await egress.fetch(FetchRequest(url=server.url()))).body == b"first"
        assert (await egress.fetch(FetchRequest(url=server.url("/next")))).body == b"next"


async def test_who_gives_up_ends_the_connection(egress: Egress) -> None:
    async def never(request: bytes) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
        while True:
            await asyncio.sleep(0.01)
            yield b"x"

    async with RawServer({"/": never}) as server:
        fetching = asyncio.create_task(egress.fetch(FetchRequest(url=server.url())))
        await eventually(lambda: server.requests)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await eventually(lambda: server.open == 0)


async def test_a_body_goes_to_a_file(egress: Egress, tmp_path: Path) -> None:
    async with RawServer({"/": page(gzip.compress(TEXT), b"Content-Encoding: gzip")}) as server:
        exchange = await egress.fetch_to(FetchRequest(url=server.url()), tmp_path / "body")
    assert (exchange.status, exchange.body) == (200, b"")
    assert (tmp_path / "body").read_bytes() == TEXT


async def test_half_a_body_leaves_no_file(egress: Egress, tmp_path: Path) -> None:
    async def half(request: bytes) -> AsyncIterator[bytes]:
        yield page(TEXT)[:-100]
        raise Close

    async with RawServer({"/": half}) as server:
        with pytest.raises(FetchError):
            await egress.fetch_to(FetchRequest(url=server.url()), tmp_path / "body")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compressed", [False, True])
async def test_the_begin_of_a_body_may_suffice(egress: Egress, compressed: bool) -> None:
    text = bytes(range(256)) * 1000
    answer = page(gzip.compress(text), b"Content-Encoding: gzip") if compressed else page(text)
    async with RawServer({"/": answer}) as server:
        exchange = await egress.fetch(FetchRequest(url=server.url(), largest_body=10_000, begin_suffices=True))
    assert (exchange.status, exchange.body) == (200, text[:10_000])


async def test_redirects_are_followed_to_the_end(egress: Egress) -> None:
    answers = {f"/{hop}": page(b"", b"Location: /%d#part" % (hop + 1), status=b"302 Found") for hop in range(3)}
    async with RawServer(answers | {"/3": page(b"there")}) as server:
        exchanges = await egress.fetch_following(FetchRequest(url=server.url("/0")), redirects=3)
        assert [each.url for each in exchanges] == [server.url(f"/{hop}") for hop in range(4)]
        few = await egress.fetch_following(FetchRequest(url=server.url("/0")), redirects=1)
    assert exchanges[-1].body == b"there"
    assert [each.status for each in few] == [302, 302]


async def test_secrets_do_not_follow_a_redirect_to_another_server(egress: Egress) -> None:
    secret = (("Authorization", "Basic c2VjcmV0"), ("Cookie", "a=b"), ("X-Open", "yes"))
    async with RawServer({"/": page(b"there")}) as other:
        answer = page(b"", b"Location: " + other.url().encode(), status=b"307 Temporary Redirect")
        async with RawServer({"/": answer}) as server:
            await egress.fetch_following(FetchRequest(url=server.url(), headers=secret), redirects=1)
    assert b"secret" not in other.requests[0].lower()
    assert b"authorization" not in other.requests[0].lower()
    assert b"cookie" not in other.requests[0].lower()
    assert b"x-open" in other.requests[0].lower()


@pytest.mark.parametrize("header", [("X-A", "b\r\nX-C: d"), ("X A", "b"), ("Host", "other"), ("Content-Length", "5")])
async def test_a_header_cannot_say_more_than_one_thing(egress: Egress, header: tuple[str, str]) -> None:
    with pytest.raises(FetchError, match="header"):
        await egress.fetch(FetchRequest(url="http://127.0.0.1:1/", headers=(header,)))


async def test_nobody_there_is_told_as_such(egress: Egress) -> None:
    async with RawServer({}) as server:
        url = server.url()
    with pytest.raises(FetchError) as caught:
        await egress.fetch(FetchRequest(url=url))
    assert caught.value.kind == "connect"


async def test_a_page_that_is_as_it_was_is_not_sent_again(egress: Egress) -> None:
    async def unchanged(request: bytes) -> AsyncIterator[bytes]:
        known = b'if-none-match: "v1"' in request.lower()
        yield b"HTTP/1.1 304 Not Modified\r\n\r\n" if known else page(b"page", b'ETag: "v1"')

    async with RawServer({"/": unchanged}) as server:
        first = await egress.fetch(FetchRequest(url=server.url()))
        again = FetchRequest(url=server.url(), headers=conditional_headers(*cache_validators(first)))
        assert (await egress.fetch(again)).status == 304
