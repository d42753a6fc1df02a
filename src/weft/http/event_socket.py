"""Events over a WebSocket: each message of the client replaces what it is subscribed to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Annotated

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.access.model import Caller, Role
from weft.app import App
from weft.cursor import Cursor
from weft.errors import DatabaseDown, WeftError
from weft.event_stream import EventBatch, EventSelection
from weft.operations import streams
from weft.operations.events import kinds_of, seen_by
from weft.operations.operation import LARGEST_ID, decode_body, decode_query

log = logging.getLogger(__name__)

SOCKET_PATH = "/v1/events/ws"
LARGEST_MESSAGE = 4096

REFUSED = 1008
"""What you are, or what you sent, is not accepted."""

TRY_LATER = (1012, "come back with the last id that you have")

SocketEnding = tuple[int, str] | None
"""The code and the reason for which a socket is closed; None where the client has done so."""


class EventSubscription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to listen to."""

    project: str | None = None
    kind: str | None = None
    """One kind or more, with commas between them."""
    run_id: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_ID)] | None = None


class FirstSubscription(EventSubscription, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same in the address, with the place to begin after."""

    since: str | None = None


class EventSocket:
    """One client and what it listens to. Made before the socket is accepted, so that a bad wish is refused."""

    def __init__(self, app: App, socket: WebSocket, caller: Caller, identify: Callable[[], Awaitable[Caller]]) -> None:
        self._app, self._socket = app, socket
        self._watch = streams.StreamCaller(caller, identify, Role.VIEWER)
        asked = dict(socket.query_params) | {"kind": ",".join(socket.query_params.getlist("kind"))}
        wish: FirstSubscription = decode_query(asked, FirstSubscription)
        self._since = wish.since or socket.headers.get("last-event-id")
        if self._since is not None:
            Cursor.parse(self._since, 0)
        self._listen_to(wish)

    async def run(self) -> None:
        """Talk until one side has had enough."""
        await self._socket.accept()
        sides = {asyncio.create_task(self._hear()), asyncio.create_task(self._tell())}
        try:
            done, _ = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
            endings = [side.result() for side in done]
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)
        if None not in endings and endings[0] is not None:
            await self._socket.close(*endings[0])

    def _listen_to(self, wish: EventSubscription) -> None:
        caller = self._watch.caller
        if wish.project is not None:
            caller.check(Role.VIEWER, wish.project)
        self._project = wish.project
        projects = caller.projects(Role.VIEWER) if wish.project is None else frozenset({wish.project})
        self._wanted = EventSelection(projects, kinds_of([wish.kind or ""]), wish.run_id)

    async def _hear(self) -> SocketEnding:
        """Take new wishes."""
        while True:
            try:
                text = await self._socket.receive_text()
            except (WebSocketDisconnect, KeyError):  # KeyError: a message of bytes
                return None
            if len(text) > LARGEST_MESSAGE:
                return REFUSED, f"a message may have at most {LARGEST_MESSAGE} characters"
            try:
                self._listen_to(decode_body(text.encode(), EventSubscription))
            except WeftError as problem:
                return REFUSED, str(problem).encode()[:120].decode(errors="ignore")

    async def _tell(self) -> SocketEnding:
        try:
            return await self._tell_all()
        except WebSocketDisconnect:
            return None
        except DatabaseDown as problem:
            log.warning("a socket is closed", extra={"why": str(problem)})
            return TRY_LATER

    async def _tell_all(self) -> SocketEnding:
        async with aclosing(self._app.tail.follow(self._since, idle_seconds=streams.RECHECK_SECONDS)) as batches:
            async for batch in batches:
                caller = await self._watch.still(self._project)
                if caller is None:
                    return REFUSED, "the key is not valid any more, or may not see this"
                self._wanted = seen_by(caller, self._wanted, self._project)
                await self._pass_on(batch)
        return TRY_LATER

    async def _pass_on(self, batch: EventBatch) -> None:
        for told in batch.chosen(self._wanted):
            await self._socket.send_text(f'{{"id":"{told.place}","event":{told.body.decode()}}}')
            self._watch.told()
        if self._watch.is_silent:
            await self._socket.send_text(f'{{"id":"{batch.place}"}}')
            self._watch.told()
