"""Pages that somebody has before them, kept as they are on the server.

A browser opens a WebSocket and says which page it shows. Whenever something has happened that may concern that page, it
is made anew, at most once in a while, and sent where it differs: once for all who see the same page with the same
rights, in the same language, compressed once. What only one reader may know, the token of their session, their browser
puts in itself.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.api.gateway import request_id_of
from weft.api.guards import Hosts
from weft.events import Event
from weft.live.tail import Batch, Tail
from weft.web.assets import build
from weft.web.frame import around
from weft.web.inside import Refusal
from weft.web.look import look_of
from weft.web.rendering import Live, Onward, Page
from weft.web.visit import Visit

log = logging.getLogger(__name__)

LIVE = "/live"
GAP_SECONDS = 0.5
"""A page is made anew no sooner than this after the last time."""
RECHECK_SECONDS = 3.0
"""How long a reader is told more after their session has ended, at most."""
MOST_READERS = 2000
LONGEST_WISH = 8192
COMPRESSION = 4
TOKEN = "\x1dtoken\x1d"  # noqa: S105
"""Stands for the token of a reader's session in a page that is made for all of them; live.js knows it too."""
LOGGED_OUT, REFUSED, LATER = 4401, 1008, 1012

Shown = Callable[[Visit, str], Awaitable[Any]]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Which page a browser shows, and whether somebody can see it."""

    page: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Readers with the same of this see the same."""

    page: str
    language: str
    theme: str
    root: str
    grants: str


@dataclass(slots=True, eq=False)
class Reader:
    """One browser."""

    socket: WebSocket
    visit: Visit
    checked_at: float
    screen: Screen | None = None
    sent: bytes = b""

    async def check(self) -> None:
        """Raise ``Refusal`` where the session has ended; asks now and then only."""
        if time.monotonic() - self.checked_at < RECHECK_SECONDS:
            return
        grants = self.visit.session["grants"]
        await self.visit.know_session()
        self.checked_at = time.monotonic()
        if self.visit.session["grants"] != grants:
            raise WebSocketDisconnect(LATER)

    async def send(self, content: bytes) -> None:
        if content == self.sent:
            return
        await self.check()
        self.sent = content
        await self.socket.send_bytes(content)


@dataclass(slots=True, eq=False)
class Screen:
    """A page, and who sees it."""

    kind: Kind
    readers: set[Reader] = field(default_factory=set)
    live: Live | None = None
    content: bytes = b""
    made_at: float = float("-inf")
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    keeping: asyncio.Task[None] | None = None

    def concerns(self, batch: Batch) -> bool:
        return self.live is None or any(_concerns(self.live, told.event) for told in batch.told)


class Screens:
    """Every page that somebody has before them."""

    def __init__(self, tail: Tail, page_of: Shown) -> None:
        self._tail, self._page_of = tail, page_of
        self._screens: dict[Kind, Screen] = {}
        self._readers = 0
        self._following: asyncio.Task[None] | None = None

    async def converse(self, socket: WebSocket, hosts: Hosts, api: ASGIApp) -> None:
        """Keep one browser's page as it should be, until it goes."""
        hosts.check(socket)
        if not hosts.allows_origin(socket.headers.get("origin", "")) or self._readers >= MOST_READERS:
            await socket.close(REFUSED)
            return
        await socket.accept()
        self._readers += 1
        reader = Reader(socket, Visit(_request(socket, "/"), api, request_id_of(socket)), float("-inf"))
        try:
            await self._serve(reader)
        except WebSocketDisconnect as gone:
            await _close(socket, gone.code)
        except Refusal:
            await _close(socket, LOGGED_OUT)
        finally:
            self._readers -= 1
            self._leave(reader)

    async def _serve(self, reader: Reader) -> None:
        await reader.visit.know_session()
        reader.checked_at = time.monotonic()
        while True:
            text = await reader.socket.receive_text()
            try:
                wish = msgspec.json.decode(text[:LONGEST_WISH], type=Wish)
            except msgspec.DecodeError:
                raise WebSocketDisconnect(REFUSED) from None
            self._leave(reader)
            if not wish.hidden:
                await self._join(reader, wish.page)

    async def _join(self, reader: Reader, page: str) -> None:
        kind = _kind(reader, page)
        screen = self._screens.setdefault(kind, Screen(kind))
        screen.readers.add(reader)
        reader.screen = screen
        if screen.keeping is None:
            screen.keeping = asyncio.create_task(self._keep(screen))
        screen.changed.set()
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    def _leave(self, reader: Reader) -> None:
        screen, reader.screen = reader.screen, None
        if screen is None:
            return
        screen.readers.discard(reader)
        if not screen.readers:
            del self._screens[screen.kind]
            if screen.keeping is not None:
                screen.keeping.cancel()
        if not self._screens and self._following is not None:
            self._following.cancel()
            self._following = None

    async def _follow(self) -> None:
        """Mark the pages that events concern, as long as somebody sees one."""
        while True:
            async with aclosing(self._tail.follow()) as batches:
                async for batch in batches:
                    for screen in self._screens.values():
                        if batch.told and screen.concerns(batch):
                            screen.changed.set()
            if self._tail.closed:
                await self._hang_up()
                return
            for screen in self._screens.values():  # it was too slow for the tail, and may have missed some
                screen.changed.set()

    async def _hang_up(self) -> None:
        readers = [reader for screen in self._screens.values() for reader in screen.readers]
        await asyncio.gather(*[_close(reader.socket, LATER) for reader in readers])

    async def _keep(self, screen: Screen) -> None:
        """Make a page anew when it may have changed, and send it to all who see it."""
        while True:
            every = screen.live.every_seconds if screen.live else 0.0
            try:
                async with asyncio.timeout(every or None):
                    await screen.changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(screen.made_at + GAP_SECONDS - time.monotonic())
            screen.changed.clear()
            await self._make(screen)
            for reader in tuple(screen.readers):
                await self._send(reader, screen.content)

    async def _make(self, screen: Screen) -> None:
        """Make the page, in the name of one of those who see it."""
        for reader in tuple(screen.readers):
            try:
                await reader.check()
                shown = await self._shown(reader, screen)
            except (Refusal, WebSocketDisconnect) as problem:
                await self._turn_away(reader, problem)
                continue
            except Exception:
                log.exception("a page could not be made anew", extra={"page": screen.kind.page})
                return
            finally:
                screen.made_at = time.monotonic()
            if shown is not None:
                screen.content = shown
            return

    async def _shown(self, reader: Reader, screen: Screen) -> bytes | None:
        path, _, query = screen.kind.page.partition("?")
        visit = Visit(_request(reader.socket, path, query), reader.visit.api, reader.visit.request_id)
        shown = await self._page_of(visit, path)
        if isinstance(shown, Onward) or not isinstance(shown, Page):
            return None
        screen.live = shown.live
        visit.session = {**visit.session, "csrf_token": TOKEN}
        title, main = shown.parts(**around(visit))
        told = msgspec.json.encode({"build": build(), "title": f"{title} · weft", "main": main})
        return gzip.compress(told, COMPRESSION, mtime=0)

    async def _send(self, reader: Reader, content: bytes) -> None:
        try:
            async with asyncio.timeout(10):
                await reader.send(content)
        except TimeoutError:
            await self._turn_away(reader, WebSocketDisconnect(LATER))
        except (Refusal, WebSocketDisconnect, RuntimeError) as problem:
            await self._turn_away(reader, problem)

    async def _turn_away(self, reader: Reader, problem: Exception) -> None:
        self._leave(reader)
        code = LOGGED_OUT if isinstance(problem, Refusal) and problem.problem.status == 401 else LATER
        await _close(reader.socket, code)


def _concerns(live: Live, event: Event) -> bool:
    if live.run_id is not None and event.run_id != live.run_id:
        return False
    return not live.kinds or event.kind.startswith(live.kinds)


def _kind(reader: Reader, page: str) -> Kind:
    look = look_of(reader.visit.request)
    grants = msgspec.json.encode(reader.visit.session["grants"], order="sorted").decode()
    return Kind(page, look.language, look.theme, reader.visit.prefix, grants)


def _request(socket: WebSocket, path: str, query: str = "") -> Request:
    """The request for a page, as the browser at the other end of a socket would send it."""
    address = {"path": path, "raw_path": path.encode(), "query_string": query.encode(errors="replace")}
    scheme = "https" if socket.scope["scheme"] == "wss" else "http"
    scope: Scope = {**socket.scope, **address, "type": "http", "method": "GET", "scheme": scheme, "state": {}}
    return Request(scope)


async def _close(socket: WebSocket, code: int) -> None:
    try:
        await socket.close(code)
    except RuntimeError:
        pass  # it is closed already
