"""The access log: which requests have a line, and what stands in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.waiting import eventually
from weft import logging_config
from weft.access.model import Role
from weft.app import App
from weft.http.application import open_server
from weft.web.site import WebSite

pytestmark = on_sqlite


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Lines:
    """What is logged meanwhile."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def all(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self._stream.getvalue().splitlines() if line.startswith("{")]
        return [each for each in found if each["logger"] == "weft.requests"]

    async def last(self, count: int) -> dict[str, Any]:
        """The newest line, once there are as many: it comes a moment after the answer."""
        await eventually(lambda: len(self.all) >= count)
        assert len(self.all) == count
        return self.all[-1]


@pytest.fixture
def loggers() -> Iterator[None]:
    """What tests set up is gone after them."""
    known = [logging.getLogger(name) for name in (None, "weft", logging_config.REQUESTS)]
    before = [(each, each.handlers[:], each.level, each.propagate, each.disabled) for each in known]
    yield
    for logger, handlers, level, propagate, disabled in before:
        logger.handlers[:], logger.propagate, logger.disabled = handlers, propagate, disabled
        logger.setLevel(level)


@pytest.fixture
def lines(loggers: None) -> Lines:
    stream = io.StringIO()
    logging_config.configure_logging("text", "info", stream, access_log="on", role="serve")
    return Lines(stream)


@pytest_asyncio.fixture
async def nobody(app: App) -> AsyncIterator[Visitor]:
    """Somebody without a key, at the door as ``weft serve`` opens it, with its pages and Scrapyd's API."""
    server = open_server(app, around=WebSite)
    port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Visitor(session, app, f"http://127.0.0.1:{port}")
    finally:
        await server.close()


async def test_each_request_has_a_line_with_what_is_known_of_it(lines: Lines, nobody: Visitor) -> None:
    viewer = await nobody.with_role(Role.ADMIN)
    answer = await viewer.get("/v1/runs/4711?x=secret-word", headers={"X-Request-Id": "mine-7"})
    line = await lines.last(1)
    assert answer.status == 404
    assert 0 < line.pop("ms") < 60_000
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "weft.requests",
        "message": "request",
        "role": "serve",
        "method": "GET",
        "route": "/v1/runs/{run_id}",
        "status": 404,
        "caller": "key:test",
        "request_id": "mine-7",
    }


async def test_the_id_that_weft_gives_is_that_of_the_answer(lines: Lines, nobody: Visitor) -> None:
    answer = await nobody.get("/v1/runs")
    line = await lines.last(1)
    assert (line["status"], line["caller"]) == (401, None)
    assert line["request_id"] == answer.headers["X-Request-Id"]


async def test_health_checks_have_no_line(lines: Lines, nobody: Visitor) -> None:
    for path in ("/healthz", "/readyz", "//healthz"):
        await nobody.get(path)
    await nobody.call("HEAD", "/healthz")
    assert (await lines.last(1))["route"] is None  # of the address with two slashes, which is none


async def test_pages_and_scrapyds_api_have_a_line_each_with_their_own_routes(lines: Lines, nobody: Visitor) -> None:
    admin = await nobody.with_role(Role.ADMIN)
    asked = {
        "/runs.json": ("/runs", "key:test"),
        "/static/nothing.js": (None, "key:test"),
        "/no/such/page": (None, None),
        "/daemonstatus.json": ("/daemonstatus.json", "key:test"),
        "/logs/shop/prices/": ("/logs", "key:test"),
        "/docs": ("/docs", None),
    }
    for count, (path, told) in enumerate(asked.items(), 1):
        await admin.get(path)
        line = await lines.last(count)
        assert (line["route"], line["caller"]) == told, path


async def test_a_request_that_is_refused_before_its_route_is_known_has_a_line(lines: Lines, nobody: Visitor) -> None:
    await nobody.get("/healthz", headers={"Host": "evil.test"})
    line = await lines.last(1)
    assert (line["route"], line["status"]) == (None, 421)
    await nobody.call("PURGE", "/v1/runs")
    assert ((await lines.last(2))["method"], lines.all[-1]["status"]) == ("other", 405)


@pytest.mark.parametrize(
    ("text", "method", "status"),
    [
        (b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n", "GET", 408),
        (b"PO", "other", 408),
        (b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000, "GET", 431),
        (b"GET /v1/runs HTTP/1.1\r\nno header\r\n\r\n", "GET", 400),
    ],
)
async def test_a_request_whose_head_is_never_read_to_its_end_has_a_line(
    lines: Lines, nobody: Visitor, monkeypatch: pytest.MonkeyPatch, text: bytes, method: str, status: int
) -> None:
    monkeypatch.setattr("weft.http.server.HEAD_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection(*nobody.address.removeprefix("http://").split(":"))
    writer.write(text)
    with suppress(ConnectionError):
        await reader.read()
    writer.close()
    line = await lines.last(1)
    assert (line["method"], line["status"], line["route"], line["caller"]) == (method, status, None, None)
    assert 0 <= line["ms"] < 60_000


async def test_a_stream_has_its_line_when_it_ends(lines: Lines, nobody: Visitor) -> None:
    admin = await nobody.with_role(Role.ADMIN)
    headers = {"Authorization": f"Bearer {admin.token}"}
    async with admin._session.ws_connect(f"{admin.address}/v1/events/ws", headers=headers):
        assert lines.all == []
    line = await lines.last(1)
    assert (line["method"], line["status"], line["caller"]) == ("WEBSOCKET", 101, "key:test")


@pytest.mark.parametrize(
    ("access_log", "level", "stream", "is_on"),
    [
        ("auto", "info", io.StringIO, True),
        ("auto", "info", Terminal, False),
        ("auto", "debug", Terminal, True),
        ("on", "info", Terminal, True),
        ("on", "warning", io.StringIO, False),
        ("off", "debug", io.StringIO, False),
    ],
)
async def test_where_there_is_an_access_log(
    loggers: None, nobody: Visitor, access_log: str, level: str, stream: type[io.StringIO], is_on: bool
) -> None:
    written = stream()
    logging_config.configure_logging("json", level, written, access_log=access_log)
    assert (await nobody.get("/v1/runs")).status == 401
    assert (await nobody.get("/v1/runs")).status == 401  # by now the line of the first one is there
    assert bool(Lines(written).all) is is_on
