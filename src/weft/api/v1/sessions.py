"""Where one is logged in, and logging out from afar."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.access.model import Role, Session
from weft.access.sessions import LONGEST
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.clock import iso

operations = Operations("sessions")

OURS = frozenset({"user"})


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A browser in which the caller is logged in."""

    id: str
    """Names the session and opens nothing."""
    address: str
    agent: str
    """What the browser calls itself."""
    created_at: str | None
    seen_at: str | None
    """To the minute."""
    ends_at: str | None
    """At the latest."""
    current: bool
    """Whether it is the one that asks."""


EXAMPLE: dict[str, Any] = {
    "id": "1f0c1b2a9d3e4f5a",
    "address": "192.0.2.7",
    "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "created_at": "2026-06-01T12:00:00.000Z",
    "seen_at": "2026-06-01T12:30:00.000Z",
    "ends_at": "2026-06-08T12:00:00.000Z",
    "current": True,
}


@operations.get(
    "/sessions",
    needs=Role.VIEWER,
    callers=OURS,
    answer=Page[OpenSession],
    example={"items": [EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[OpenSession]:
    """List the sessions of the caller, the one that was used last first."""
    call.check_own()
    mine: Session | None = getattr(call.request.state, "session", None)
    here = "" if mine is None else mine.handle
    return Page(items=[_document(each, here) for each in await call.app.sessions.all(call.caller.id)])


@operations.delete("/sessions/{session_id}", needs=Role.VIEWER, callers=OURS)
async def end(call: Call) -> None:
    """End one session of the caller: whoever uses it is logged out."""
    call.check_own(f"session {call.path('session_id')}")
    await call.app.sessions.end_one(call.caller.id, call.path("session_id"))


def _document(session: Session, here: str) -> OpenSession:
    return OpenSession(
        id=session.handle,
        address=session.address,
        agent=session.agent,
        created_at=iso(session.created_at),
        seen_at=iso(session.seen_at),
        ends_at=iso(session.created_at + LONGEST),
        current=session.handle == here,
    )
