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
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.api.gateway import request_id_of
from weft.api.guards import Hosts
from weft.api.places import Places
from weft.api.problems import Refused
from weft.errors import WeftError
from weft.live.tail import Tail
from weft.web.assets import build
from weft.web.frame import around
from weft.web.inside import Refusal
from weft.web.pages.guest import hidden
from weft.web.readers import BUSY, LATER, LOGGED_OUT, REFUSED, Kind, Reader, Screen, Sessions, request_of
from weft.web.rendering import Page
from weft.web.visit import Visit

log = logging.getLogger(__name__)

LIVE = "/live"
GAP_SECONDS = 0.5
"""A page is made anew no sooner than this after the last time."""
WISH_SECONDS = 0.1
"""How long a browser waits that asks for another page at once."""
SEND_SECONDS = 10.0
MOST_READERS = 2000
"""In all; half of them for one user."""
COMPRESSION = 4
TOKEN = f"\x1d{secrets.token_hex(16)}\x1d"
"""Stands for the token of a reader's session in a page that is made for all of them. Nobody can guess it, so that no
scraped text can have it in it."""

Shown = Callable[[Visit, str], Awaitable[Any]]


class Screens:
    """Every page that somebody has before them."""

    def __init__(self, tail: Tail, page_of: Shown) -> None:
        self._tail, self._page_of = tail, page_of
        self._screens: dict[Kind, Screen] = {}
        self._places = Places(MOST_READERS, "live pages")
        self._sessions = Sessions()
        self._following: asyncio.Task[None] | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What is on the screens now."""
        return tuple(self._screens)

    async def converse(self, socket: WebSocket, hosts: Hosts, api: ASGIApp) -> None:
        """Keep one browser's page as it should be, until it goes."""
        try:
            hosts.check(socket)
        except Refused:
            await socket.close(REFUSED)
            return
        if not hosts.allows_origin(socket.headers.get("origin", "")):
            await socket.close(REFUSED)
            return
        await socket.accept()
        visit = Visit(request_of(socket, {"path": "/"}), api, request_id_of(socket))
        reader = Reader(socket, visit, self._sessions)
        try:
            await self._serve(reader)
        except WebSocketDisconnect as gone:
            await reader.close(gone.code)
        except Refused:
            await reader.close(BUSY)
        except Refusal as refusal:
            await reader.close(LOGGED_OUT if refusal.problem.status == 401 else BUSY)
        finally:
            self._leave(reader)

    async def _serve(self, reader: Reader) -> None:
        await reader.visit.know_session()
        reader.checked_at = time.monotonic()
        with self._places.taken(reader.name):
            while True:
                wish = await reader.wish()
                self._leave(reader)
                if not wish.hidden:
                    self._join(reader, wish.page)
                await asyncio.sleep(WISH_SECONDS)

    def _join(self, reader: Reader, page: str) -> None:
        kind = reader.kind(page)
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
                self._following = None  # who goes away now must not end this before all are told
                await self._hang_up()
                return
            for screen in self._screens.values():  # it was too slow for the tail, and may have missed some
                screen.changed.set()

    async def _hang_up(self) -> None:
        readers = [reader for screen in self._screens.values() for reader in screen.readers]
        await asyncio.gather(*[reader.close(LATER) for reader in readers])

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
            await asyncio.gather(*[self._send(reader, screen.content) for reader in tuple(screen.readers)])

    async def _make(self, screen: Screen) -> None:
        """Make the page, in the name of one of those who see it."""
        for reader in tuple(screen.readers):
            try:
                await reader.check()
                screen.content = await self._shown(reader, screen) or screen.content
                return
            except WebSocketDisconnect as gone:
                await self._turn_away(reader, gone.code)
            except Refusal as refusal:
                if refusal.problem.status != 401:
                    return
                await self._turn_away(reader, LOGGED_OUT)
            except WeftError:
                return  # there is nothing at this address any more; what was seen last stays
            except Exception:
                log.exception("a page could not be made anew", extra={"page": hidden(screen.kind.page)})
                return
            finally:
                screen.made_at = time.monotonic()

    async def _shown(self, reader: Reader, screen: Screen) -> bytes:
        visit = Visit(reader.request(screen.kind.page), reader.visit.api, reader.visit.request_id)
        shown = await self._page_of(visit, str(visit.request.scope["path"]))
        if not isinstance(shown, Page):
            return b""
        if visit.session:
            grants, reader.visit.session = reader.visit.session["grants"], visit.session
            reader.refuse_others(grants)
        screen.live = shown.live
        visit.session = {**visit.session, "csrf_token": TOKEN}
        title, main = shown.parts(**around(visit))
        told = {"build": build(), "title": f"{title} · weft", "main": main, "token": TOKEN}
        return gzip.compress(msgspec.json.encode(told), COMPRESSION, mtime=0)

    async def _send(self, reader: Reader, content: bytes) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await reader.send(content)
        except TimeoutError:
            await self._turn_away(reader, LATER)
        except Refusal as refusal:
            await self._turn_away(reader, LOGGED_OUT if refusal.problem.status == 401 else LATER)
        except (WebSocketDisconnect, RuntimeError):
            await self._turn_away(reader, LATER)

    async def _turn_away(self, reader: Reader, code: int) -> None:
        """Close first: whoever leaves as the last ends the task that is speaking here."""
        await reader.close(code)
        self._leave(reader)
