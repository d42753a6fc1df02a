"""Where a fetch may go, seen from listeners that must hear nothing."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.cases import for_each
from tests.fetching.conftest import HERE
from tests.fetching.raw_server import RawServer, page
from weft.address_guard import Guard
from weft.crawler.reasons import error_problem
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest


class Names:
    """Names whose addresses a test decides; a list of answers is given one by one, the last again and again."""

    def __init__(self, **names: list[list[str]]) -> None:
        self._names, self.asked = names, 0

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked += 1
        answers = self._names[host.partition(".")[0]]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@for_each(
    "url",
    [
        "http://user:password@127.0.0.1/",
        "http://127.0.0.1\\@weft.example/",
        "http://weft.example\\.other.example/",
        "http://127.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://1.2.3.4.:80/",
        "http://weft.example:99999/",
        "http://weft.example:80:80/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http:///path",
        "http://",
        "//weft.example/",
        "ftp://weft.example/",
        "file:///etc/passwd",
        "gopher://weft.example/",
        "http://weft.example/a b",
        "http://weft.example/a\r\nHost: other",
        "http://weft.example/\\other",
        "http://ｗeft.example/",
        "http://weft。example/",
        "http://weft.example%2eother/",
        "http://127。0。0。1/",
        "http://weft.example\t/",
        "",
    ],
)
async def test_an_address_that_can_be_misread_is_not_fetched(egress: Egress, url: str) -> None:
    with pytest.raises(FetchError) as caught:
        await egress.fetch(FetchRequest(url=url, deadline_seconds=5))
    assert caught.value.kind == "url", str(caught.value)


async def test_a_password_in_an_address_is_not_told(egress: Egress) -> None:
    with pytest.raises(FetchError) as caught:
        await egress.fetch(FetchRequest(url="http://user:s3cret@weft.example/"))
    assert "s3cret" not in str(caught.value)


async def test_one_closed_address_closes_a_name() -> None:
    async with RawServer({"/": page(b"here")}) as server:
        egress = Egress(Guard(["127.0.0.1/32"]), user_agent="t", resolver=Names(mixed=[["127.0.0.1", "127.0.0.2"]]))
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url=f"http://mixed.example:{server.port}/"))
        assert (caught.value.kind, server.connections) == ("refused_address", 0)
    assert "127.0.0.2" in str(caught.value)
    assert "mixed.example" in str(caught.value)
    await egress.close()


async def test_a_name_is_looked_up_once_so_that_it_cannot_change_between_check_and_connection() -> None:
    names = Names(rebinding=[["127.0.0.1"], ["127.0.0.2"]])
    async with RawServer({"/": page(b"here")}) as server:
        egress = Egress(Guard(["127.0.0.1/32"]), user_agent="t", resolver=names)
        exchange = await egress.fetch(FetchRequest(url=f"http://rebinding.example:{server.port}/"))
        assert f"host: rebinding.example:{server.port}".encode() in server.requests[0].lower()
    assert (exchange.address, names.asked) == ("127.0.0.1", 1)
    await egress.close()


async def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    async with RawServer({"/": page(b"here")}) as server:
        egress = Egress(Guard(HERE), user_agent="t", resolver=Names(two=[["127.0.0.2", "127.0.0.1"]]))
        exchange = await egress.fetch(FetchRequest(url=f"http://two.example:{server.port}/"))
    assert exchange.address == "127.0.0.1"
    await egress.close()


async def test_a_name_without_addresses_is_told_as_such() -> None:
    egress = Egress(Guard(), user_agent="t", resolver=Names(none=[[]]))
    with pytest.raises(FetchError) as caught:
        await egress.fetch(FetchRequest(url="http://none.example/"))
    assert caught.value.kind == "name"
    await egress.close()


async def test_a_name_that_nobody_finds_ends_by_the_deadline() -> None:
    class Slow:
        async def resolve(self, host: str, port: int) -> list[str]:
            await asyncio.Event().wait()
            return []

    egress = Egress(Guard(), user_agent="t", resolver=Slow())
    with pytest.raises(FetchError) as caught:
        await egress.fetch(FetchRequest(url="http://slow.example/", deadline_seconds=0.1))
    assert caught.value.kind == "deadline"
    await egress.close()


async def test_a_connection_that_is_refused_is_called_so(egress: Egress) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # and nobody listens
        port = sock.getsockname()[1]
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url=f"http://127.0.0.1:{port}/"))
    assert str(caught.value) == f"127.0.0.1:{port} cannot be reached: connection refused"
    assert error_problem(caught.value) == "does not answer (connection refused)"
