from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fetching.conftest import HERE
from tests.fetching.forwarder import Forwarder
from tests.fetching.raw_server import RawServer, page
from tests.servers.certificate import self_signed
from weft.address_guard import Guard
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest, ProxyExit

LOGIN = b"proxy-authorization: Basic dXNlcjpwYXNzOndvcmQ="
"""user, pass:word"""


@pytest.fixture
async def trusting() -> AsyncIterator[Egress]:
    """Does not mind who signed a certificate."""
    made = Egress(Guard(HERE), user_agent="weft-tests", verify_tls=False)
    yield made
    await made.close()


def secret(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(folder, "localhost"))
    return context


def through(port: int, login: str = "user:pass%3Aword@") -> ProxyExit:
    return ProxyExit(name="cheap", url=f"http://{login}127.0.0.1:{port}")


async def test_a_proxy_is_told_the_whole_address_and_the_password(egress: Egress) -> None:
    async with RawServer({"/p": page(b"page")}) as server, Forwarder(LOGIN) as proxy:
        exchange = await egress.fetch(FetchRequest(url=server.url("/p"), exit=through(proxy.port)))
        assert exchange.body == b"page"
        assert proxy.asked[0].startswith(b"GET " + server.url("/p").encode() + b" HTTP/1.1\r\n")


async def test_a_proxy_only_passes_on_what_is_secret(trusting: Egress, tmp_path: Path) -> None:
    async with RawServer({"/p": page(b"page")}, secret(tmp_path)) as server, Forwarder(LOGIN) as proxy:
        for _ in range(2):
            exchange = await trusting.fetch(FetchRequest(url=server.url("/p"), exit=through(proxy.port)))
            assert exchange.body == b"page"
        assert [each.split(b"\r\n")[0] for each in proxy.asked] == [b"CONNECT 127.0.0.1:%d HTTP/1.1" % server.port]
        assert b"authorization" not in server.requests[0].lower()


@pytest.mark.parametrize("is_secret", [False, True])
async def test_a_proxy_that_does_not_know_us_is_told_as_such(trusting: Egress, is_secret: bool) -> None:
    async with Forwarder(LOGIN) as proxy:
        ask = FetchRequest(
            url=f"http{'s' if is_secret else ''}://127.0.0.1:9/", exit=through(proxy.port, "user:wrong@")
        )
        if is_secret:
            with pytest.raises(FetchError, match="407") as caught:
                await trusting.fetch(ask)
            assert caught.value.kind == "proxy"
        else:
            assert (await trusting.fetch(ask)).status == 407


async def test_a_proxy_that_is_away_is_told_as_such(egress: Egress) -> None:
    async with Forwarder() as proxy:
        port = proxy.port
    with pytest.raises(FetchError, match="cheap") as caught:
        await egress.fetch(FetchRequest(url="http://127.0.0.1:9/", exit=through(port)))
    assert caught.value.kind == "proxy"
    assert "word" not in str(caught.value)


async def test_a_proxy_in_a_closed_network_is_not_used() -> None:
    egress = Egress(Guard(["127.0.0.2/32"]), user_agent="weft-tests")
    async with Forwarder() as proxy:
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url="http://127.0.0.2:9/", exit=through(proxy.port)))
        assert (caught.value.kind, proxy.asked) == ("refused_address", [])


@pytest.mark.parametrize("target", ["http://10.0.0.1/", "https://169.254.169.254/", "http://[::1]/"])
async def test_a_proxy_leads_to_no_closed_address(egress: Egress, target: str) -> None:
    async with Forwarder() as proxy:
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url=target, exit=through(proxy.port)))
        assert (caught.value.kind, proxy.asked) == ("refused_address", [])


async def test_a_proxy_that_never_answers_ends_by_the_deadline(egress: Egress) -> None:
    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url="https://127.0.0.1:9/", exit=through(port), deadline_seconds=0.3))
    assert caught.value.kind == "deadline"


@pytest.mark.parametrize("url", ["socks5://127.0.0.1:1", "http://", "127.0.0.1:1", "http://127.0.0.1:x"])
async def test_an_exit_that_is_no_http_proxy_is_refused(egress: Egress, url: str) -> None:
    with pytest.raises(FetchError) as caught:
        await egress.fetch(FetchRequest(url="http://127.0.0.1:9/", exit=ProxyExit(name="odd", url=url)))
    assert caught.value.kind == "proxy"


async def test_a_certificate_that_nobody_signed_is_refused(egress: Egress, tmp_path: Path) -> None:
    async with RawServer({"/": page(b"page")}, secret(tmp_path)) as server:
        with pytest.raises(FetchError, match="certificate") as caught:
            await egress.fetch(FetchRequest(url=server.url()))
        assert (caught.value.kind, server.requests) == ("tls", [])
