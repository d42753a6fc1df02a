"""The calendar of schedules, and what a schedule would do that no task has yet."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.api import examples
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import After, Limit, cursor, names
from weft.documents.schedules import (
    CalendarDay,
    CalendarLine,
    PreviewDocument,
    day_document,
    line_document,
    preview_document,
)
from weft.errors import Invalid
from weft.tasks.list_store import Listing
from weft.tasks.schedule import parse_when
from weft.tasks.times import days_from
from weft.tasks.zones import zone_named

operations = Operations("schedules")


class Sketch(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as a person writes it."""

    when: str = ""
    """Five cron fields, @daily, @every 1h30m or a date."""
    zone: str = "UTC"


@operations.get(
    "/schedules/preview",
    needs=Role.VIEWER,
    query=Sketch,
    answer=PreviewDocument,
    example={
        "schedule": examples.SCHEDULED["schedule"],
        "words": examples.SCHEDULED["words"],
        "times": [{"at": "2026-12-01T01:30:00.000Z", "local": "2026-12-01T02:30:00+01:00", "clock_change_seconds": 0}],
    },
)
async def preview(call: Call) -> PreviewDocument:
    """Tell in words when a schedule would fire, and its next ten times; nothing is kept."""
    call.check_own()
    asked: Sketch = call.query
    _check_zone(asked.zone)
    if not asked.when.strip():
        raise Invalid("when", asked.when, "it must be five cron fields, @daily, @every 1h30m or a date")
    schedule = parse_when(asked.when, asked.zone)
    return preview_document(schedule, call.app.schedules.preview(schedule))


def _check_zone(zone: str) -> None:
    try:
        zone_named(zone)
    except Invalid as problem:
        raise Invalid("zone", zone, problem.allowed) from problem


class Days(msgspec.Struct, frozen=True, kw_only=True):
    """Which days of which schedules."""

    since: str = ""
    """The first day, such as 2026-06-01; without, today."""
    days: Annotated[int, msgspec.Meta(ge=1, le=42)] = 7
    zone: str = "UTC"
    """Whose days they are."""
    project: str | None = None
    after: After | None = None
    limit: Limit = 200


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """What fires on which day, schedule by schedule."""

    zone: str
    days: list[CalendarDay]
    lines: list[CalendarLine]
    next: str | None


@operations.get(
    "/schedules/calendar",
    needs=Role.VIEWER,
    query=Days,
    answer=Calendar,
    example={
        "zone": "UTC",
        "days": [{"date": "2026-12-01", "start_at": "2026-12-01T00:00:00.000Z", "end_at": "2026-12-02T00:00:00.000Z"}],
        "lines": [
            {
                "project": "shop",
                "task": "prices",
                "words": "every day at 02:30 (UTC)",
                "days": [1],
                "fires": [{"at": "2026-12-01T02:30:00.000Z", "outcome": "queued", "run_id": 7, "state": "succeeded"}],
            }
        ],
        "next": None,
    },
)
async def calendar(call: Call) -> Calendar:
    """Tell what fires on which day and what came of it, by project and task; paused tasks are left out.

    A schedule that fires more than four times a day is told by a number for each day.
    """
    asked: Days = call.query
    _check_zone(asked.zone)
    days = days_from(asked.since or call.app.schedules.today(asked.zone), asked.days, asked.zone)
    place: Any = names(asked.after, 2)
    wanted = Listing(projects=call.visible(asked.project), paused=False, after=place, limit=asked.limit)
    lines, onward = await call.app.schedules.calendar(wanted, days)
    return Calendar(
        zone=asked.zone,
        days=[day_document(day) for day in days],
        lines=[line_document(line) for line in lines],
        next=None if onward is None else cursor(onward),
    )
