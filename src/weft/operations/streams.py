"""Server-sent event streams, and the regular check whether their callers are still allowed to read them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from weft.access.model import Caller, Role
from weft.errors import DatabaseDown, NotAllowed, NotFound, Unknown

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
RECHECK_SECONDS = 3.0
"""How long a stream may go on after its caller's key was revoked, at most."""

TOGETHER_SECONDS = 0.5
"""How long what one stream learned of its caller is good for another with the same credentials."""

GOODBYE = b": come back with the last id that you have\n\n"
REFUSED = b": your key is not valid any more, or may not see this\n\n"
HEADERS = {"X-Accel-Buffering": "no"}
"""A proxy in between must pass on each event as it comes."""


class EventStreamResponse(StreamingResponse):
    """An answer that lasts; what it holds is let go when it ends, however it ends."""

    held: ExitStack | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.held or ExitStack():
            await super().__call__(scope, receive, send)


def event_stream(pieces: AsyncIterator[bytes]) -> EventStreamResponse:
    return EventStreamResponse(pieces, headers=HEADERS, media_type=MEDIA_TYPE)


def heartbeat(place: str) -> bytes:
    """A comment; the id without data only moves the place from which the client comes back."""
    return b": still here\nid: %b\n\n" % place.encode()


class SharedRechecks:
    """Tells anew who somebody is. Streams that came with the same credentials ask together."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], tuple[float, asyncio.Task[Caller]]] = {}

    async def of(self, connection: HTTPConnection, ask: Callable[[], Coroutine[Any, Any, Caller]]) -> Caller:
        credentials = (connection.headers.get("authorization", ""), connection.headers.get("cookie", ""))
        now = time.monotonic()
        asked_at, asking = self._asked.get(credentials, (0.0, None))
        if asking is None or now - asked_at > TOGETHER_SECONDS:
            self._asked = {key: each for key, each in self._asked.items() if now - each[0] <= TOGETHER_SECONDS}
            asking = asyncio.create_task(ask())
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be that nobody waits
            self._asked[credentials] = (now, asking)
        return asking.result() if asking.done() else await asyncio.shield(asking)


class StreamCaller:
    """Knows whether the caller of a stream is still welcome, and when it was last told that the stream lives."""

    def __init__(self, caller: Caller, identify: Callable[[], Awaitable[Caller]], needs: Role) -> None:
        self.caller, self._identify, self._needs = caller, identify, needs
        self._told_at = float("-inf")  # so that the first thing said is where the stream begins
        self._check_at = time.monotonic() + _spread(RECHECK_SECONDS)

    def told(self) -> None:
        self._told_at = time.monotonic()

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self._told_at >= HEARTBEAT_SECONDS

    async def still(self, project: str | None = None) -> Caller | None:
        """The caller as they are now, None where they are refused; asks at most every few seconds.

        ``project`` is one that they must be able to see.
        """
        if time.monotonic() < self._check_at:
            return self.caller
        self._check_at = time.monotonic() + _spread(RECHECK_SECONDS)
        try:
            self.caller = await self._identify()
            if project is not None:
                self.caller.check(self._needs, project)
        except (Unknown, NotAllowed, NotFound):
            return None
        except DatabaseDown:
            log.warning("a stream could not check its caller")
        return self.caller


def _spread(seconds: float) -> float:
    """A little less, so that those who came together do not ask together for ever."""
    return seconds * random.uniform(0.6, 1.0)
