"""List and follow events, and show the activity of the last hours and the progress of runs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from weft import events
from weft.access.model import Caller, Role
from weft.clock import iso
from weft.counters.store import BYTES, ERRORS, ITEMS, MINUTE, PAGES, STATE, TEN_MINUTES, CounterSeries
from weft.cursor import Cursor
from weft.db.database import Transaction
from weft.errors import DatabaseDown, Invalid
from weft.event_stream import EventDocument, EventSelection, event_document
from weft.events import KINDS, Event
from weft.operations import streams
from weft.operations.operation import LARGEST_ID, Call, Operations, SharedAnswer
from weft.operations.paging import Limit, Page, PageCursor, decode_number, encode_cursor
from weft.spiders.timeline import RunThroughput

log = logging.getLogger(__name__)

operations = Operations("events")

WINDOW = 50_000
"""How many events one page looks through at most; one that finds little says where to go on. Those of a run are found
by an index, so they need no bound."""


RunId = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_ID)]


class EventStreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to follow."""

    project: str | None = None
    kind: str | None = None
    """One kind or more, with commas between them."""
    run_id: RunId | None = None


class EventQuery(EventStreamQuery, frozen=True, kw_only=True):
    """Which events to list."""

    after: PageCursor | None = None
    limit: Limit = 50


EVENT_EXAMPLE: dict[str, Any] = msgspec.to_builtins(
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
    query=EventStreamQuery,
    media_type=streams.MEDIA_TYPE,
    headers={"Last-Event-ID": "The id of the last event that was received; the stream goes on right after that one."},
    example="id: 1042\nevent: run_finished\ndata: {…}\n\n",
)
async def follow(call: Call) -> Response:
    """Send each event as it happens, as server-sent events."""
    asked: EventStreamQuery = call.query
    wanted = EventSelection(call.visible(asked.project), _kinds(call), asked.run_id)
    since = call.header("last-event-id") or None
    if since is not None:
        Cursor.parse(since, 0)
    if call.http.method == "HEAD":
        return Response(media_type=streams.MEDIA_TYPE)
    return streams.event_stream(_frames(call, wanted, asked.project, since))


@operations.get(
    "/events/history",
    needs=Role.VIEWER,
    query=EventQuery,
    answer=Page[EventDocument],
    example={"items": [EVENT_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[EventDocument]:
    """List events, newest first. A page may have fewer than were asked for, also none, and a next."""
    asked: EventQuery = call.query
    wanted = EventSelection(call.visible(asked.project), _kinds(call), asked.run_id)
    return await _event_page(call, wanted, asked)


async def _event_page(call: Call, wanted: EventSelection, asked: EventQuery) -> Page[EventDocument]:
    before, limit = decode_number(asked.after), asked.limit

    def work(tx: Transaction) -> tuple[list[Event], int]:
        below = before if before is not None else events.last_id(tx) + 1
        above = max(below - 1 - WINDOW, 0) if wanted.run_id is None else 0
        return events.find(tx, wanted, above=above, below=below, limit=limit), above

    found, above = await call.app.db.read(work)
    end = found[-1].id if len(found) == limit else above + 1
    return Page(items=[event_document(event) for event in found], next=encode_cursor(end) if end > 1 else None)


async def _frames(call: Call, wanted: EventSelection, project: str | None, since: str | None) -> AsyncIterator[bytes]:
    seen, watch = call.caller, streams.StreamCaller(call.caller, call.identify, Role.VIEWER)
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


def seen_by(caller: Caller, wanted: EventSelection, project: str | None) -> EventSelection:
    """The same wish of somebody whose grants may have changed."""
    if project is not None:
        return wanted
    projects = caller.projects(Role.VIEWER)
    return wanted if projects == wanted.projects else EventSelection(projects, wanted.kinds, wanted.run_id)


def _kinds(call: Call) -> frozenset[str] | None:
    """The kinds of the query: the parameter may be given more than once, and have commas."""
    return kinds_of(call.http.query_params.getlist("kind"))


def kinds_of(given: list[str]) -> frozenset[str] | None:
    """The kinds that some texts name; None where they name none."""
    kinds = frozenset(part.strip() for text in given for part in text.split(",") if part.strip())
    for kind in sorted(kinds - KINDS.keys()):
        raise Invalid("kind", kind, f"it must be one of {', '.join(sorted(KINDS))}")
    return kinds or None


activity_operations = Operations("activity")

MOST_RUNS = 200
END_KINDS = ("succeeded", "failed", "cancelled")


class ActivitySeriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one step after the other; the last step is not over yet."""

    begins_at: str | None
    step_seconds: int
    succeeded: list[int]
    failed: list[int]
    cancelled: list[int]
    items: list[int]
    """Stored."""
    pages: list[int]
    """Responses that spiders and crawls have received."""
    errors: list[int]
    """Logged by spiders, and fetches of crawls that failed."""
    bytes: list[int]
    """Of the responses."""


class RunStateCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs there are now."""

    ready: int
    held: int
    """Those of them that a limit of runs at once holds back."""
    waiting: int
    """For their time, or for their next try."""
    paused: int
    running: int


class ActivityDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What there is now, and what has happened within the last hour, minute by minute, and within the last day."""

    now: RunStateCounts
    hour: ActivitySeriesDocument
    day: ActivitySeriesDocument
    notable: list[EventDocument]
    """Events of the last day that somebody should look at, newest first."""


class ActivityQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose activity."""

    project: str | None = None


class ProgressQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs."""

    ids: Annotated[str, msgspec.Meta(description=f"Numbers of runs with commas between them, {MOST_RUNS} at most.")] = (
        ""
    )


class RunProgressDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is."""

    run_id: int
    items: int | None
    """Null for one that yields none."""
    rates: list[int]
    """Items a minute, from one sample to the next; of a run that has ended there are none."""
    why: str | None
    """Why it waits, of one that is queued."""


HOUR: dict[str, Any] = {
    "begins_at": "2026-06-01T11:01:00.000Z",
    "step_seconds": 60,
    "succeeded": [1, 0, 3],
    "failed": [0, 0, 1],
    "cancelled": [0, 0, 0],
    "items": [120, 40, 310],
    "pages": [130, 44, 330],
    "errors": [0, 0, 2],
    "bytes": [1_300_000, 440_000, 3_300_000],
}
ACTIVITY_EXAMPLE = {
    "now": {"ready": 3, "held": 0, "waiting": 0, "paused": 0, "running": 10},
    "hour": HOUR,
    "day": HOUR | {"begins_at": "2026-05-31T12:10:00.000Z", "step_seconds": 600},
    "notable": [],
}


@activity_operations.get(
    "/activity", name="show", needs=Role.VIEWER, query=ActivityQuery, answer=ActivityDocument, example=ACTIVITY_EXAMPLE
)
async def show_activity(call: Call) -> SharedAnswer[ActivityDocument]:
    """Tell what waits and runs, how many runs ended and items came of late, and what is worth a look."""
    projects, activity = call.visible(call.query.project), call.app.insights.activity

    async def found() -> ActivityDocument:
        await activity.catch_up()
        recent = await call.app.counters.recent(projects)
        return ActivityDocument(
            now=RunStateCounts(**await call.app.runs.counts(projects), held=await call.app.runs.held(projects)),
            hour=_series(recent[MINUTE]),
            day=_series(recent[TEN_MINUTES]),
            notable=[event_document(event) for event in activity.notable(projects)],
        )

    return await call.shared(projects, found)


@activity_operations.get(
    "/progress",
    name="progress",
    needs=Role.VIEWER,
    query=ProgressQuery,
    answer=Page[RunProgressDocument],
    example={"items": [{"run_id": 7, "items": 310, "rates": [40, 55, 60], "why": None}], "next": None},
)
async def run_progress(call: Call) -> Page[RunProgressDocument]:
    """Tell how far runs are: what they have yielded, how fast, and why those wait that do.

    Runs that there are not, or that the caller may not see, are left out.
    """
    projects = call.visible()
    ids = _ids(call.query.ids)
    found = await call.app.runs.projects_of(ids)
    seen = [run_id for run_id in ids if run_id in found and (projects is None or found[run_id] in projects)]
    yielded, whys = await call.app.insights.pace.of(seen), await call.app.insights.reasons.of(seen)
    return Page(items=[_progress(run_id, yielded.get(run_id), whys.get(run_id)) for run_id in seen])


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MOST_RUNS or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        raise Invalid("ids", text[:100], f"it must be numbers of runs with commas between them, {MOST_RUNS} at most")
    return [int(part) for part in parts]


def _progress(run_id: int, yielded: RunThroughput | None, why: str | None) -> RunProgressDocument:
    if yielded is None:
        return RunProgressDocument(run_id=run_id, items=None, rates=[], why=why)
    return RunProgressDocument(run_id=run_id, items=yielded.items, rates=list(yielded.rates), why=why)


def _series(series: CounterSeries) -> ActivitySeriesDocument:
    counted = {name: list(series.of(name)) for name in (ITEMS, PAGES, ERRORS, BYTES)}
    counted |= {state: list(series.of(STATE + state)) for state in END_KINDS}
    return ActivitySeriesDocument(begins_at=iso(series.begins_at), step_seconds=series.step_seconds, **counted)
