"""Activity: how much has happened lately, and how far runs are."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.clock import iso
from weft.errors import Invalid
from weft.items.activity import DAY_STEP, HOUR_STEP, Series
from weft.items.pace import Yielded
from weft.live.document import EventDocument, event_document

operations = Operations("activity")

MOST_RUNS = 200


class SeriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one step after the other; the last step is not over yet."""

    begins_at: str | None
    step_seconds: int
    succeeded: list[int]
    failed: list[int]
    cancelled: list[int]
    items: list[int]


class LiveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs there are now."""

    ready: int
    waiting: int
    """For their time, or for their next try."""
    running: int


class ActivityDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What there is now, and what has happened within the last hour, minute by minute, and within the last day."""

    now: LiveDocument
    known_since: str | None
    """A busy system counts only what is newest: from here on."""
    hour: SeriesDocument
    day: SeriesDocument
    notable: list[EventDocument]
    """Events of the last day that somebody should look at, newest first."""


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Whose activity."""

    project: str | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs."""

    ids: Annotated[str, msgspec.Meta(description=f"Numbers of runs with commas between them, {MOST_RUNS} at most.")] = (
        ""
    )


class ProgressDocument(msgspec.Struct, frozen=True, kw_only=True):
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
}
EXAMPLE = {
    "now": {"ready": 3, "waiting": 0, "running": 10},
    "known_since": "2026-05-31T12:00:00.000Z",
    "hour": HOUR,
    "day": HOUR | {"begins_at": "2026-05-31T12:10:00.000Z", "step_seconds": 600},
    "notable": [],
}


@operations.get("/activity", needs=Role.VIEWER, query=Which, answer=ActivityDocument, example=EXAMPLE)
async def show(call: Call) -> bytes:
    """Tell what waits and runs, how many runs ended and items came of late, and what is worth a look."""
    projects, activity = call.visible(call.query.project), call.app.outlook.activity

    async def found() -> ActivityDocument:
        await activity.catch_up()
        return ActivityDocument(
            now=LiveDocument(**await call.app.runs.counts(projects)),
            known_since=iso(activity.known_since),
            hour=_series(activity.series(HOUR_STEP, projects)),
            day=_series(activity.series(DAY_STEP, projects)),
            notable=[event_document(event) for event in activity.notable(projects)],
        )

    return await call.shared(projects, found)


@operations.get(
    "/progress",
    needs=Role.VIEWER,
    query=Asked,
    answer=Page[ProgressDocument],
    example={"items": [{"run_id": 7, "items": 310, "rates": [40, 55, 60], "why": None}], "next": None},
)
async def progress(call: Call) -> Page[ProgressDocument]:
    """Tell how far runs are: what they have yielded, how fast, and why those wait that do.

    Runs that there are not, or that the caller may not see, are left out.
    """
    projects = call.visible()
    ids = _ids(call.query.ids)
    found = await call.app.runs.projects_of(ids)
    seen = [run_id for run_id in ids if run_id in found and (projects is None or found[run_id] in projects)]
    yielded, whys = await call.app.outlook.pace.of(seen), await call.app.outlook.reasons.of(seen)
    return Page(items=[_progress(run_id, yielded.get(run_id), whys.get(run_id)) for run_id in seen])


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MOST_RUNS or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        raise Invalid("ids", text[:100], f"it must be numbers of runs with commas between them, {MOST_RUNS} at most")
    return [int(part) for part in parts]


def _progress(run_id: int, yielded: Yielded | None, why: str | None) -> ProgressDocument:
    if yielded is None:
        return ProgressDocument(run_id=run_id, items=None, rates=[], why=why)
    return ProgressDocument(run_id=run_id, items=yielded.items, rates=list(yielded.rates), why=why)


def _series(series: Series) -> SeriesDocument:
    fields = {name: getattr(series, name) for name in SeriesDocument.__struct_fields__}
    return SeriesDocument(**fields | {"begins_at": iso(series.begins_at)})
