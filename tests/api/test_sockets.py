"""Events over a WebSocket: the same as the stream, for the same people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.api.acting import Visitor, visiting
from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import submit, submit_many
from tests.waiting import eventually
from weft.access.model import Role
from weft.operations import streams

PATH = "/v1/events/ws"


class Line:
    """An open WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def next(self) -> Any:
        async with asyncio.timeout(20):
            return await self.socket.receive_json()

    async def event(self) -> Any:
        """The next message that has an event."""
        while "event" not in (message := await self.next()):
            assert message.keys() == {"id"}
        return message

    async def run_ids(self, count: int) -> list[int]:
        return [(await self.event())["event"]["run_id"] for _ in range(count)]

    async def end(self) -> int | None:
        """The code with which the other side closes."""
        async with asyncio.timeout(20):
            async for _ in self.socket:
                pass
        return self.socket.close_code


@asynccontextmanager
async def connected(visitor: Visitor, query: str = "", **headers: str) -> AsyncIterator[Line]:
    """A WebSocket at the tail of the events."""
    headers = {"Authorization": f"Bearer {visitor.token}"} | headers
    before = visitor.app.tail.listeners
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(visitor.address + PATH + query, headers=headers) as socket,
    ):
        await eventually(lambda: visitor.app.tail.listeners > before)
        yield Line(socket)


async def refused(visitor: Visitor, path: str = PATH, **headers: str) -> int:
    headers = ({"Authorization": f"Bearer {visitor.token}"} if visitor.token else {}) | headers
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await session.ws_connect(visitor.address + path, headers=headers)
    return refusal.value.status


async def test_what_happens_is_told_and_gone_on_with_at_another_gateway(admin: Visitor, another_app: OpenApp) -> None:
    async with connected(admin) as line:
        ids = await submit_many(admin.app, 2)
        first = await line.event()
        assert (first["event"]["run_id"], first["event"]["kind"]) == (ids[0], "run_queued")
    async with visiting(await another_app()) as other:
        other.token = admin.token
        async with connected(other, f"?since={first['id']}") as line:
            later = await submit(admin.app)
            assert await line.run_ids(2) == [ids[1], later]


async def test_only_events_of_projects_that_the_caller_may_view_are_told(nobody: Visitor) -> None:
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    async with connected(viewer) as line:
        await submit(nobody.app, project="secret")
        run_id = await submit(nobody.app, project="shop")
        assert await line.run_ids(1) == [run_id]
    assert await refused(viewer, f"{PATH}?project=secret") == 403


async def test_a_message_changes_what_is_listened_to(admin: Visitor) -> None:
    async with connected(admin, "?project=shop&kind=run_queued&kind=run_started") as line:
        run_id = await submit(admin.app, project="shop")
        assert await line.run_ids(1) == [run_id]
        await line.socket.send_json({"project": "books"})
        hearing = asyncio.create_task(line.event())

        async def heard() -> bool:
            await submit(admin.app, project="books")
            return hearing.done()

        await eventually(heard)
        assert (await hearing)["event"]["project"] == "books"


@pytest.mark.parametrize("message", ["no JSON", '{"colour": "red"}', '{"kind": "run_dreamt"}', "x" * 5000])
@on_sqlite
async def test_a_bad_message_closes_the_socket(admin: Visitor, message: str) -> None:
    async with connected(admin) as line:
        await line.socket.send_str(message)
        assert await line.end() == 1008


@on_sqlite
async def test_a_huge_message_is_not_even_taken_in(admin: Visitor) -> None:
    async with connected(admin) as line:
        await line.socket.send_str("x" * 1_000_000)
        assert await line.end() == 1009


@on_sqlite
async def test_strangers_and_foreign_pages_are_refused(nobody: Visitor, admin: Visitor) -> None:
    assert await refused(nobody) == 401
    assert await refused(admin, Origin="https://evil.test") == 403
    assert await refused(admin, Host="evil.test") == 421
    assert await refused(admin, "/v1/nowhere") == 404
    assert await refused(admin, f"{PATH}?since=soon") == 422
    assert await refused(admin, f"{PATH}?colour=red") == 422
    async with connected(admin, Origin=admin.address):
        assert admin.app.tail.listeners == 1


@on_sqlite
async def test_a_revoked_key_closes_its_socket(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.05)
    async with connected(admin) as line:
        [key] = await admin.app.keys.all()
        await admin.app.keys.revoke(key.id)
        assert await line.end() == 1008


@on_sqlite
async def test_a_silent_socket_tells_where_it_is(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.1)
    async with connected(admin, "?project=books") as line:
        await submit(admin.app, project="shop")
        while (message := await line.next()) != {"id": "1"}:
            assert message == {"id": "0"}


@on_sqlite
async def test_a_socket_that_is_left_leaves_the_tail(admin: Visitor) -> None:
    async with connected(admin):
        assert admin.app.tail.listeners == 1
    await eventually(lambda: admin.app.tail.listeners == 0)


async def test_a_server_that_stops_closes_its_sockets(another_app: OpenApp) -> None:
    app = await another_app()
    async with visiting(app) as nobody:
        joining = connected(await nobody.with_role(Role.ADMIN))
        line = await joining.__aenter__()
        ending = asyncio.create_task(line.end())
    assert await ending == 1012
    await joining.__aexit__(None, None, None)
