"""Who has a page before them, and what they are sent."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.types import Message, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.events import Event
from weft.live.tail import Batch
from weft.web.look import look_of
from weft.web.menu import noun_of
from weft.web.rendering import Live
from weft.web.visit import Visit

RECHECK_SECONDS = 3.0
"""How long a reader is told more after their session has ended, at most."""
TOGETHER_SECONDS = 0.5
"""How long what one page of a session has learned of it is good for its others."""
LONGEST_WISH = 8192
LOGGED_OUT, REFUSED, LATER, BUSY = 4401, 1008, 1012, 1013
FOR_ALL = frozenset(
    ("overview", "runs", "tasks", "schedules", "projects", "datasets", "workers", "letters", "webhooks")
)
"""Pages that show the same to all who have the same rights. What is somebody's own, such as keys, is in others."""


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
    scheme: str
    host: str
    """Where they reach weft: commands to be copied name it."""
    grants: str
    name: str
    """Whose page it is; empty for one that is for all."""


class Sessions:
    """Tells anew who readers are. Pages of one session ask together."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], tuple[float, asyncio.Task[None], Visit]] = {}

    async def know(self, visit: Visit) -> None:
        """As ``visit.know_session``, with what another page of the session has learned within the last moments."""
        headers, now = visit.request.headers, time.monotonic()
        credentials = (headers.get("authorization", ""), headers.get("cookie", ""))
        at, asking, asker = self._asked.get(credentials, (0.0, None, visit))
        if asking is None or now - at > TOGETHER_SECONDS:
            self._asked = {key: each for key, each in self._asked.items() if now - each[0] <= TOGETHER_SECONDS}
            asking, asker = asyncio.create_task(visit.know_session()), visit
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be that nobody waits
            self._asked[credentials] = (now, asking, visit)
        await asyncio.shield(asking)
        visit.session = asker.session


@dataclass(slots=True, eq=False)
class Reader:
    """One browser."""

    socket: WebSocket
    visit: Visit
    sessions: Sessions
    checked_at: float = float("-inf")
    screen: Screen | None = None
    sent: bytes = b""

    @property
    def name(self) -> str:
        return f"{self.visit.session['kind']} {self.visit.session['name']}"

    def kind(self, page: str) -> Kind:
        look, visit = look_of(self.visit.request), self.visit
        grants = msgspec.json.encode(visit.session["grants"], order="sorted").decode()
        whose = "" if noun_of(page.partition("?")[0]) in FOR_ALL else self.name
        reached = visit.request.scope["scheme"], visit.request.headers.get("host", "")
        return Kind(page, look.language, look.theme, visit.prefix, *reached, grants, whose)

    async def wish(self) -> Wish:
        """What the browser wants next; one that sends anything else is sent away."""
        message: Message = await self.socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", LATER))
        text = message.get("text") or ""
        try:
            wish = msgspec.json.decode(text if len(text) <= LONGEST_WISH else "", type=Wish)
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
            raise WebSocketDisconnect(LATER)

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


def request_of(socket: WebSocket, address: Scope) -> Request:
    scheme = "https" if socket.scope["scheme"] == "wss" else "http"
    return Request({**socket.scope, **address, "type": "http", "method": "GET", "scheme": scheme, "state": {}})


def _concerns(live: Live, event: Event) -> bool:
    if live.run_id is not None and event.run_id != live.run_id:
        return False
    return not live.kinds or event.kind.startswith(live.kinds)
