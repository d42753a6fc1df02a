"""Live pages: open pages that the server renders anew after events, and sends to browsers over a WebSocket."""

from __future__ import annotations

import asyncio
import gzip
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.errors import WeftError
from weft.event_stream import EventBatch, EventStream
from weft.events import Event
from weft.http.gateway import request_id_of
from weft.http.guards import AllowedHosts
from weft.http.limits import ConcurrencyLimit
from weft.http.performer import Performer
from weft.operations.problems import RequestRefused
from weft.web.assets import build
from weft.web.layout import appearance_of, layout_values, noun_of
from weft.web.pages.guest_links import without_token
from weft.web.rendering import LiveRefresh, WebPage
from weft.web.visit import ApiError, Visit

RECHECK_SECONDS = 3.0
"""How long a reader is told more after their session has ended, at most."""
SESSION_SECONDS = 0.5
"""How long what one page of a session has learned of it is good for its others."""
LONGEST_MESSAGE = 8192
LOGGED_OUT, REFUSED, GOING_AWAY, BUSY = 4401, 1008, 1012, 1013
SHARED_PAGES = frozenset(
    ("overview", "runs", "tasks", "schedules", "projects", "datasets", "workers", "dead-letters", "webhooks")
)
"""Pages that show the same to all who have the same rights. What is somebody's own, such as keys, is in others."""


class BrowserState(msgspec.Struct, frozen=True, kw_only=True):
    """Which page a browser shows, and whether somebody can see it."""

    page: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class ViewKey:
    """Readers with the same of this see the same."""

    page: str
    language: str
    theme: str
    root: str
    scheme: str
    host: str
    """Where they reach weft: commands to be copied name it."""
    grants: str
    name: str
    """Whose page it is; empty for one that is for all."""


class SessionChecks:
    """Tells anew who readers are. Pages of one session ask together."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], tuple[float, asyncio.Task[None], Visit]] = {}

    async def know(self, visit: Visit) -> None:
        """As ``visit.know_session``, with what another page of the session has learned within the last moments."""
        headers, now = visit.request.headers, time.monotonic()
        credentials = (headers.get("authorization", ""), headers.get("cookie", ""))
        at, asking, asker = self._asked.get(credentials, (0.0, None, visit))
        if asking is None or now - at > SESSION_SECONDS:
            self._asked = {key: each for key, each in self._asked.items() if now - each[0] <= SESSION_SECONDS}
            asking, asker = asyncio.create_task(visit.know_session()), visit
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be that nobody waits
            self._asked[credentials] = (now, asking, visit)
        await asyncio.shield(asking)
        visit.caller, visit.session = asker.caller, asker.session


@dataclass(slots=True, eq=False)
class Viewer:
    """One browser."""

    socket: WebSocket
    visit: Visit
    sessions: SessionChecks
    checked_at: float = float("-inf")
    screen: LivePage | None = None
    sent: bytes = b""

    @property
    def name(self) -> str:
        return f"{self.visit.session['kind']} {self.visit.session['name']}"

    def kind(self, page: str) -> ViewKey:
        look, visit = appearance_of(self.visit.request), self.visit
        grants = msgspec.json.encode(visit.session["grants"], order="sorted").decode()
        whose = "" if noun_of(page.partition("?")[0]) in SHARED_PAGES else self.name
        reached = visit.request.scope["scheme"], visit.request.headers.get("host", "")
        return ViewKey(page, look.language, look.theme, visit.prefix, *reached, grants, whose)

    async def wish(self) -> BrowserState:
        """What the browser wants next; one that sends anything else is sent away."""
        message: Message = await self.socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", GOING_AWAY))
        text = message.get("text") or ""
        try:
            wish = msgspec.json.decode(text if len(text) <= LONGEST_MESSAGE else "", type=BrowserState)
        except msgspec.DecodeError:
            raise WebSocketDisconnect(REFUSED) from None
        if not wish.page.startswith("/"):
            raise WebSocketDisconnect(REFUSED)
        return wish

    async def check(self) -> None:
        """Raise ``Refusal`` where the session has ended; asks now and then only."""
        if time.monotonic() - self.checked_at < RECHECK_SECONDS:
            return
        grants = self.visit.session["grants"]
        await self.sessions.know(self.visit)
        self.checked_at = time.monotonic()
        self.refuse_others(grants)

    def refuse_others(self, grants: object) -> None:
        """Send the reader away where their rights are others than ``grants``: what they see is made with other ones."""
        if self.visit.session["grants"] != grants:
            raise WebSocketDisconnect(GOING_AWAY)

    async def send(self, content: bytes) -> None:
        if not content or content == self.sent:
            return
        await self.check()
        self.sent = content
        await self.socket.send_bytes(content)

    def request(self, page: str) -> Request:
        """The request for a page, as the browser at the other end of the socket would send it."""
        path, _, query = page.partition("?")
        raw, query_string = path.encode(errors="replace"), query.encode(errors="replace")
        return request_of(self.socket, {"path": unquote(path), "raw_path": raw, "query_string": query_string})

    async def close(self, code: int) -> None:
        try:
            async with asyncio.timeout(5):
                await self.socket.close(code)
        except (RuntimeError, TimeoutError, WebSocketDisconnect):
            pass  # it is closed already, or nobody is there any more


@dataclass(slots=True, eq=False)
class LivePage:
    """A page, and who sees it."""

    kind: ViewKey
    readers: set[Viewer] = field(default_factory=set)
    live: LiveRefresh | None = None
    content: bytes = b""
    made_at: float = float("-inf")
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    keeping: asyncio.Task[None] | None = None

    def concerns(self, batch: EventBatch) -> bool:
        return self.live is None or any(_is_concerned(self.live, told.event) for told in batch.told)


def request_of(socket: WebSocket, address: Scope) -> Request:
    scheme = "https" if socket.scope["scheme"] == "wss" else "http"
    return Request({**socket.scope, **address, "type": "http", "method": "GET", "scheme": scheme, "state": {}})


def _is_concerned(live: LiveRefresh, event: Event) -> bool:
    if live.run_id is not None and event.run_id != live.run_id:
        return False
    return not live.kinds or event.kind.startswith(live.kinds)


log = logging.getLogger(__name__)

LIVE = "/live"
GAP_SECONDS = 0.5
"""A page is made anew no sooner than this after the last time."""
NAVIGATE_SECONDS = 0.1
"""How long a browser waits that asks for another page at once."""
SEND_SECONDS = 10.0
MOST_VIEWERS = 2000
"""In all; half of them for one user."""
COMPRESSION = 4
TOKEN = f"\x1d{secrets.token_hex(16)}\x1d"
"""Stands for the token of a reader's session in a page that is made for all of them. Nobody can guess it, so that no
scraped text can have it in it."""

PageOf = Callable[[Visit, str], Awaitable[Any]]


class LivePages:
    """Every page that somebody has before them."""

    def __init__(self, tail: EventStream, page_of: PageOf) -> None:
        self._tail, self._page_of = tail, page_of
        self._screens: dict[ViewKey, LivePage] = {}
        self._places = ConcurrencyLimit(MOST_VIEWERS, "live pages")
        self._sessions = SessionChecks()
        self._following: asyncio.Task[None] | None = None

    @property
    def kinds(self) -> tuple[ViewKey, ...]:
        """What is on the screens now."""
        return tuple(self._screens)

    async def converse(self, socket: WebSocket, hosts: AllowedHosts, api: ASGIApp, performer: Performer) -> None:
        """Keep one browser's page as it should be, until it goes."""
        try:
            hosts.check(socket)
        except RequestRefused:
            await socket.close(REFUSED)
            return
        if not hosts.allows_origin(socket.headers.get("origin", "")):
            await socket.close(REFUSED)
            return
        await socket.accept()
        visit = Visit(request_of(socket, {"path": "/"}), api, performer, request_id_of(socket))
        reader = Viewer(socket, visit, self._sessions)
        try:
            await self._serve(reader)
        except WebSocketDisconnect as gone:
            await reader.close(gone.code)
        except RequestRefused:
            await reader.close(BUSY)
        except ApiError as refusal:
            await reader.close(LOGGED_OUT if refusal.problem.status == 401 else BUSY)
        finally:
            self._leave(reader)

    async def _serve(self, reader: Viewer) -> None:
        await reader.visit.know_session()
        reader.checked_at = time.monotonic()
        with self._places.taken(reader.name):
            while True:
                wish = await reader.wish()
                self._leave(reader)
                if not wish.hidden:
                    self._join(reader, wish.page)
                await asyncio.sleep(NAVIGATE_SECONDS)

    def _join(self, reader: Viewer, page: str) -> None:
        kind = reader.kind(page)
        screen = self._screens.setdefault(kind, LivePage(kind))
        screen.readers.add(reader)
        reader.screen = screen
        if screen.keeping is None:
            screen.keeping = asyncio.create_task(self._keep(screen))
        screen.changed.set()
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    def _leave(self, reader: Viewer) -> None:
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
        await asyncio.gather(*[reader.close(GOING_AWAY) for reader in readers])

    async def _keep(self, screen: LivePage) -> None:
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

    async def _make(self, screen: LivePage) -> None:
        """Make the page, in the name of one of those who see it."""
        for reader in tuple(screen.readers):
            try:
                await reader.check()
                screen.content = await self._shown(reader, screen) or screen.content
                return
            except WebSocketDisconnect as gone:
                await self._turn_away(reader, gone.code)
            except ApiError as refusal:
                if refusal.problem.status != 401:
                    return
                await self._turn_away(reader, LOGGED_OUT)
            except WeftError:
                return  # there is nothing at this address any more; what was seen last stays
            except Exception:
                log.exception("a page could not be made anew", extra={"page": without_token(screen.kind.page)})
                return
            finally:
                screen.made_at = time.monotonic()

    async def _shown(self, reader: Viewer, screen: LivePage) -> bytes:
        mine = reader.visit
        visit = Visit(reader.request(screen.kind.page), mine.api, mine.performer, mine.request_id)
        shown = await self._page_of(visit, str(visit.request.scope["path"]))
        if not isinstance(shown, WebPage):
            return b""
        if visit.session:
            grants, reader.visit.session = reader.visit.session["grants"], visit.session
            reader.refuse_others(grants)
        screen.live = shown.live
        visit.session = {**visit.session, "csrf_token": TOKEN}
        title, main = shown.parts(**layout_values(visit))
        told = {"build": build(), "title": f"{title} · weft", "main": main, "token": TOKEN}
        return gzip.compress(msgspec.json.encode(told), COMPRESSION, mtime=0)

    async def _send(self, reader: Viewer, content: bytes) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await reader.send(content)
        except TimeoutError:
            await self._turn_away(reader, GOING_AWAY)
        except ApiError as refusal:
            await self._turn_away(reader, LOGGED_OUT if refusal.problem.status == 401 else GOING_AWAY)
        except (WebSocketDisconnect, RuntimeError):
            await self._turn_away(reader, GOING_AWAY)

    async def _turn_away(self, reader: Viewer, code: int) -> None:
        """Close first: whoever leaves as the last ends the task that is speaking here."""
        await reader.close(code)
        self._leave(reader)
