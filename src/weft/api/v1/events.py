"""Events: what happened, as pages or as it happens."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from weft import events
from weft.access.model import Caller, Role
from weft.api import streams
from weft.api.call import LARGEST_ID, Call
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, cursor, page
from weft.db.database import Transaction
from weft.errors import DatabaseDown, Invalid
from weft.events import KINDS, Event
from weft.live.document import EventDocument, event_document
from weft.live.tail import Wanted
from weft.position import Position

log = logging.getLogger(__name__)

operations = Operations("events")

WINDOW = 50_000
"""How many events one page looks through at most; one that finds little says where to go on. Those of a run are found
by an index, so they need no bound."""


RunId = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_ID)]


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to follow."""

    project: str | None = None
    kind: str | None = None
    """One kind or more, with commas between them."""
    run_id: RunId | None = None


class Filter(Live, frozen=True, kw_only=True):
    """Which events to list."""

    after: After | None = None
    limit: Limit = 50


EXAMPLE: dict[str, Any] = msgspec.to_builtins(
    EventDocument(
        id=1042,
        at="2026-06-01T12:00:00.000Z",
        kind="run_finished",
        project="shop",
        run_id=7,
        task_id=3,
        data={"state": "succeeded", "outcome": "succeeded", "reason": None},
    )
)


@operations.get(
    "/events",
    needs=Role.VIEWER,
    query=Live,
    media_type=streams.MEDIA_TYPE,
    headers={"Last-Event-ID": "The id of the last event that was received; the stream goes on right after that one."},
    example="id: 1042\nevent: run_finished\ndata: {…}\n\n",
)
async def follow(call: Call) -> Response:
    """Send each event as it happens, as server-sent events."""
    asked: Live = call.query
    wanted = Wanted(call.visible(asked.project), _kinds(call), asked.run_id)
    since = call.header("last-event-id") or None
    if since is not None:
        Position.parse(since, 0)
    if call.request.method == "HEAD":
        return Response(media_type=streams.MEDIA_TYPE)
    return streams.stream(_frames(call, wanted, asked.project, since))


@operations.get(
    "/events/history",
    needs=Role.VIEWER,
    query=Filter,
    answer=Page[EventDocument],
    example={"items": [EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[EventDocument]:
    """List events, newest first. A page may have fewer than were asked for, also none, and a next."""
    asked: Filter = call.query
    wanted = Wanted(call.visible(asked.project), _kinds(call), asked.run_id)
    return await _page(call, wanted, asked)


async def _page(call: Call, wanted: Wanted, asked: Filter) -> Page[EventDocument]:
    before, limit = page(asked.after), asked.limit

    def work(tx: Transaction) -> tuple[list[Event], int]:
        below = before if before is not None else events.last_id(tx) + 1
        above = max(below - 1 - WINDOW, 0) if wanted.run_id is None else 0
        return events.find(tx, wanted, above=above, below=below, limit=limit), above

    found, above = await call.app.db.read(work)
    end = found[-1].id if len(found) == limit else above + 1
    return Page(items=[event_document(event) for event in found], next=cursor(end) if end > 1 else None)


async def _frames(call: Call, wanted: Wanted, project: str | None, since: str | None) -> AsyncIterator[bytes]:
    seen, watch = call.caller, streams.Watch(call.caller, call.identify, Role.VIEWER)
    try:
        async with aclosing(call.app.tail.follow(since, idle_seconds=streams.RECHECK_SECONDS)) as batches:
            async for batch in batches:
                caller = await watch.still(project)
                if caller is None:
                    yield streams.REFUSED
                    return
                if caller is not seen:
                    seen, wanted = caller, seen_by(caller, wanted, project)
                if frames := batch.frames(wanted):
                    yield frames
                    watch.told()
                elif watch.is_silent:
                    yield streams.heartbeat(batch.place)
                    watch.told()
    except DatabaseDown as problem:
        log.warning("a stream of events ends", extra={"why": str(problem)})
    yield streams.GOODBYE


def seen_by(caller: Caller, wanted: Wanted, project: str | None) -> Wanted:
    """The same wish of somebody whose grants may have changed."""
    if project is not None:
        return wanted
    projects = caller.projects(Role.VIEWER)
    return wanted if projects == wanted.projects else Wanted(projects, wanted.kinds, wanted.run_id)


def _kinds(call: Call) -> frozenset[str] | None:
    """The kinds of the query: the parameter may be given more than once, and have commas."""
    return kinds_of(call.request.query_params.getlist("kind"))


def kinds_of(given: list[str]) -> frozenset[str] | None:
    """The kinds that some texts name; None where they name none."""
    kinds = frozenset(part.strip() for text in given for part in text.split(",") if part.strip())
    for kind in sorted(kinds - KINDS.keys()):
        raise Invalid("kind", kind, f"it must be one of {', '.join(sorted(KINDS))}")
    return kinds or None
