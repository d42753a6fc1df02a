"""Answers that last: server-sent events, with a sign of life and a look at the caller's key now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.responses import StreamingResponse

from weft.access.model import Caller, Role
from weft.api.call import Call
from weft.errors import DatabaseDown, NotAllowed, NotFound, Unknown

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
RECHECK_SECONDS = 3.0
"""How long a stream may go on after its caller's key was revoked, at most."""

GOODBYE = b": come back with the last id that you have\n\n"
REFUSED = b": your key is not valid any more, or may not see this\n\n"
HEADERS = {"X-Accel-Buffering": "no"}
"""A proxy in between must pass on each event as it comes."""


def asked_for(call: Call) -> bool:
    """Whether the caller wants a stream and not a page."""
    return call.request.method == "GET" and MEDIA_TYPE in (call.header("accept") or "")


def stream(pieces: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(pieces, headers=HEADERS, media_type=MEDIA_TYPE)


def heartbeat(place: str) -> bytes:
    """A comment; the id without data only moves the place from which the client comes back."""
    return b": still here\nid: %b\n\n" % place.encode()


class Watch:
    """Knows whether the caller of a stream is still welcome, and when it was last told that the stream lives."""

    def __init__(self, caller: Caller, identify: Callable[[], Awaitable[Caller]], needs: Role) -> None:
        self.caller, self._identify, self._needs = caller, identify, needs
        self._checked_at = self._told_at = time.monotonic()

    def told(self) -> None:
        self._told_at = time.monotonic()

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self._told_at >= HEARTBEAT_SECONDS

    async def still(self, project: str | None = None) -> Caller | None:
        """The caller as they are now, None where they are refused; asks at most every few seconds.

        ``project`` is one that they must be able to see.
        """
        if time.monotonic() - self._checked_at < RECHECK_SECONDS:
            return self.caller
        self._checked_at = time.monotonic()
        try:
            self.caller = await self._identify()
            if project is not None:
                self.caller.check(self._needs, project)
        except (Unknown, NotAllowed, NotFound):
            return None
        except DatabaseDown:
            log.warning("a stream could not check its caller")
        return self.caller
