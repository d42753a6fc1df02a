"""The kind ``http`` connects only to addresses that may be connected to, whatever leads there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.executing import attempt
from tests.fetching.raw_server import RawServer, page
from weft.adapters.executors.http import HttpExecutor
from weft.ports import Ended


async def fetch(url: str, *allowed: str) -> Ended:
    work = msgspec.structs.replace(attempt(Path("unused"), {"url": url}), allowed_networks=allowed)
    return await HttpExecutor().execute(work)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])  # noqa: S104
async def test_a_closed_address_is_not_asked(host: str) -> None:
    async with RawServer({"/": page(b"secret")}) as server:
        ended = await fetch(f"http://{host}:{server.port}/")
        assert server.connections == 0
    assert ended.outcome == "failed"
    assert "allowed_networks" in ended.reason


async def test_a_redirect_to_a_closed_address_is_not_followed() -> None:
    async with RawServer({}) as server:
        answer = page(b"", f"Location: http://127.0.0.2:{server.port}/secret".encode(), status=b"302 Found")
        server._answers["/"] = answer  # type: ignore[index]
        ended = await fetch(server.url(), "127.0.0.1/32")
        assert [each.split(b" ")[1] for each in server.requests] == [b"/"]
    assert ended.reason == (
        "127.0.0.2 is not public: it belongs to this machine; allow it with the setting allowed_networks"
    )


async def test_an_allowed_network_is_asked() -> None:
    async with RawServer({"/": page(b"mine")}) as server:
        ended = await fetch(server.url(), "127.0.0.0/8")
    assert ended.outcome == "succeeded"
