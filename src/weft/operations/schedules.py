"""List and change schedules, preview them, and show them in a calendar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from weft.access.model import Role
from weft.clock import iso
from weft.errors import Invalid
from weft.operations.operation import (
    ETAG_HEADER,
    EXAMPLE_TIME,
    IF_MATCH_HEADER,
    Call,
    Operations,
    Time,
    as_example,
    copied,
)
from weft.operations.paging import Limit, Page, PageCursor, decode_names, decode_numbers, encode_cursor, example_page
from weft.operations.tasks import (
    EXAMPLE_SCHEDULE,
    EXAMPLE_TASK,
    EXAMPLE_TICK,
    ScheduleDocument,
    ScheduleInput,
    TickDocument,
    schedule_of,
    tick_document,
)
from weft.tasks.calendar import CalendarRow, DaySpan, FireTime, PlannedTick, days_from
from weft.tasks.list_store import TaskFilter, UpcomingQuery
from weft.tasks.model import schedule_text
from weft.tasks.schedule import Schedule, parse_when
from weft.tasks.schedules import ScheduledTask
from weft.tasks.timezones import zone_named


class FireTimeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One tick that lies ahead."""

    at: Time | None
    local: str
    """What a clock of the schedule's zone shows then."""
    clock_change_seconds: int
    """By how much that clock is set forward (or back: negative) between the time before, or now, and this one."""


class SkippedTimeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks in a row that never fired."""

    first_at: Time | None
    last_at: Time | None
    count: int


class SchedulePreviewDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that no task has yet."""

    schedule: ScheduleDocument
    words: str
    times: list[FireTimeDocument]


class CalendarFire(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that lies ahead, or what came of one."""

    at: Time | None
    outcome: str | None
    """queued, skipped, duplicate, backfilled, or missed where it never fired; null where it lies ahead."""
    run_id: int | None
    state: str | None
    """How the run stands that came of it."""


class CalendarLine(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in a calendar."""

    project: str
    task: str
    words: str
    days: list[int]
    """How often it fires on each day."""
    fires: list[CalendarFire] | None
    """Null where it fires more than four times a day: then the numbers tell."""


class CalendarDay(msgspec.Struct, frozen=True, kw_only=True):
    date: str
    start_at: Time | None
    end_at: Time | None


class ScheduledDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule of a task, what lies ahead and what came of it. One that is shown by itself has its newest ticks."""

    project: str
    task: str
    schedule: ScheduleDocument
    words: str
    """When it fires, as a sentence."""
    paused: bool
    next_fire_at: Time | None
    """The tick that it waits for; null while it is paused, and once it is over."""
    next: list[Time | None]
    """Its next ten times."""
    missed: int
    """How many ticks came too late to fire."""
    last_tick: TickDocument | None
    """The last tick that has fired or was dropped."""
    revision: int
    """That of the task."""
    updated_at: Time | None
    """When the task was changed last."""
    ticks: list[TickDocument] | msgspec.UnsetType = msgspec.UNSET
    times: list[FireTimeDocument] | msgspec.UnsetType = msgspec.UNSET
    """Its next ten times, on a clock of its zone."""
    gaps: list[SkippedTimeDocument] | msgspec.UnsetType = msgspec.UNSET
    """What never fired of its newest 500 ticks within a week, since the task was last changed."""


def scheduled_document(scheduled: ScheduledTask) -> ScheduledDocument:
    stored = scheduled.stored
    return ScheduledDocument(
        project=stored.task.project,
        task=stored.task.name,
        schedule=copied(ScheduleDocument, scheduled.schedule),
        words=schedule_text(scheduled.schedule),
        paused=stored.task.paused,
        next_fire_at=iso(stored.next_fire_at),
        next=[iso(at) for at in scheduled.ahead],
        missed=stored.missed,
        last_tick=tick_document(scheduled.ticks[0]) if scheduled.ticks else None,
        revision=stored.revision,
        updated_at=iso(stored.updated_at),
    )


def scheduled_page(scheduled: ScheduledTask) -> ScheduledDocument:
    """The schedule with its newest ticks."""
    ticks = [tick_document(each) for each in scheduled.ticks]
    gaps = [
        SkippedTimeDocument(first_at=iso(gap.first), last_at=iso(gap.last), count=gap.count) for gap in scheduled.gaps
    ]
    times = [fire_time_document(each) for each in scheduled.times]
    return msgspec.structs.replace(scheduled_document(scheduled), ticks=ticks, times=times, gaps=gaps)


def fire_time_document(fire: FireTime) -> FireTimeDocument:
    return FireTimeDocument(at=iso(fire.at), local=fire.local, clock_change_seconds=fire.clock_change_seconds)


def schedule_preview_document(schedule: Schedule, times: Sequence[FireTime]) -> SchedulePreviewDocument:
    shown = copied(ScheduleDocument, schedule)
    return SchedulePreviewDocument(
        schedule=shown, words=schedule_text(schedule), times=[fire_time_document(each) for each in times]
    )


def calendar_line(line: CalendarRow) -> CalendarLine:
    task = line.stored.task
    fires = None if line.fires is None else [_calendar_fire(fire) for fire in line.fires]
    days = list(line.days)
    return CalendarLine(
        project=task.project, task=task.name, words=schedule_text(line.schedule), days=days, fires=fires
    )


def calendar_day(day: DaySpan) -> CalendarDay:
    return CalendarDay(date=day.date, start_at=iso(day.start), end_at=iso(day.end))


def _calendar_fire(fire: PlannedTick) -> CalendarFire:
    return CalendarFire(at=iso(fire.at), outcome=fire.outcome, run_id=fire.run_id, state=fire.state)


_example_scheduled = ScheduledTask(
    stored=EXAMPLE_TASK, schedule=EXAMPLE_SCHEDULE, ahead=EXAMPLE_TASK.ahead(EXAMPLE_TIME, 2), ticks=[EXAMPLE_TICK]
)
SCHEDULED_EXAMPLE = as_example(scheduled_document(_example_scheduled))
SHOWN_SCHEDULED_EXAMPLE = as_example(scheduled_page(_example_scheduled))


operations = Operations("schedules")

SCHEDULE_PATH = "/schedules/{project}/{task}"


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which schedules to list."""

    project: str | None = None
    task: str | None = None
    paused: bool | None = None
    sort: Literal["name", "-name", "next_fire_at"] = "name"
    """By project and task, or backwards, or by what fires next; those that wait for no tick are last."""
    after: PageCursor | None = None
    limit: Limit = 50


@operations.get(
    "/schedules",
    needs=Role.VIEWER,
    query=ScheduleQuery,
    answer=Page[ScheduledDocument],
    example=example_page(SCHEDULED_EXAMPLE),
)
async def list_(call: Call) -> Page[ScheduledDocument]:
    """List the schedules of tasks, by name or by what fires next, each with its next ten times and its last tick.

    By what fires next, a page may have fewer than were asked for, also none; as long as it has a ``next``, there may be
    more. A schedule that fires meanwhile moves on in this order and may be seen twice, by name it stays in its place.
    """
    found, onward = await _schedule_found(call, call.query)
    items = [scheduled_document(each) for each in found]
    return Page(items=items, next=None if onward is None else encode_cursor(onward))


async def _schedule_found(call: Call, asked: ScheduleQuery) -> tuple[list[ScheduledTask], Any]:
    chosen: dict[str, Any] = {
        "projects": call.visible(asked.project),
        "name": asked.task,
        "paused": asked.paused,
        "limit": asked.limit,
    }
    if asked.sort == "next_fire_at":
        turn: Any = decode_numbers(asked.after, 2)
        return await call.app.schedules.by_time(UpcomingQuery(**chosen, after=turn))
    place: Any = decode_names(asked.after, 2)
    return await call.app.schedules.by_name(TaskFilter(**chosen, backwards=asked.sort == "-name", after=place))


@operations.get(
    SCHEDULE_PATH,
    needs=Role.VIEWER,
    answer=ScheduledDocument,
    answer_headers=ETAG_HEADER,
    example=SHOWN_SCHEDULED_EXAMPLE,
)
async def show(call: Call) -> ScheduledDocument:
    """Show the schedule of a task, its next ten times and its newest ticks. Its ETag is the task's."""
    return _schedule_shown(call, await call.app.schedules.get(*_schedule_named(call)))


class ScheduleUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The schedule that a task is to have."""

    schedule: str | ScheduleInput
    """A text such as @daily, or a table."""
    paused: bool | UnsetType = UNSET
    """Whether the task is paused. Default: as it is."""
    project: str | UnsetType = UNSET
    """In an address it is named already."""
    task: str | UnsetType = UNSET
    words: Any = UNSET
    """Set by weft and not read, as all that follows."""
    next_fire_at: Any = UNSET
    next: Any = UNSET
    missed: Any = UNSET
    last_tick: Any = UNSET
    revision: Any = UNSET
    updated_at: Any = UNSET
    ticks: Any = UNSET
    times: Any = UNSET
    gaps: Any = UNSET


@operations.put(
    SCHEDULE_PATH,
    needs=Role.DEVELOPER,
    body=ScheduleUpdate,
    answer=ScheduledDocument,
    headers=IF_MATCH_HEADER,
    answer_headers=ETAG_HEADER,
    example=SHOWN_SCHEDULED_EXAMPLE,
    example_body={"schedule": {"when": "30 2 * * *", "zone": "Europe/Berlin"}},
)
async def put(call: Call) -> ScheduledDocument:
    """Give a task this schedule; it acts from now on.

    What only weft sets may be sent along and is not read, so that what was read can be sent back with a change.
    """
    project, task = _schedule_named(call)
    body: ScheduleUpdate = call.body
    for what, wanted, given in (("project", project, body.project), ("task", task, body.task)):
        if given not in (UNSET, wanted):
            raise Invalid(what, given, f"the address says {wanted!r}; leave it out")
    paused = None if body.paused is UNSET else body.paused
    wanted_schedule = schedule_of(body.schedule)
    return _schedule_shown(
        call, await call.app.schedules.set(project, task, wanted_schedule, paused=paused, seen=call.seen)
    )


@operations.delete(SCHEDULE_PATH, needs=Role.DEVELOPER, headers=IF_MATCH_HEADER)
async def delete(call: Call) -> None:
    """Take the schedule from a task. The task stays, and so do its runs and ticks."""
    await call.app.schedules.remove(*_schedule_named(call), seen=call.seen)


@operations.post(
    f"{SCHEDULE_PATH}/pause", needs=Role.OPERATOR, answer=ScheduledDocument, example=SHOWN_SCHEDULED_EXAMPLE
)
async def pause(call: Call) -> ScheduledDocument:
    """Pause a task that has a schedule, and what would follow from other tasks."""
    return _schedule_shown(call, await call.app.schedules.pause(*_schedule_named(call)))


@operations.post(
    f"{SCHEDULE_PATH}/resume", needs=Role.OPERATOR, answer=ScheduledDocument, example=SHOWN_SCHEDULED_EXAMPLE
)
async def resume(call: Call) -> ScheduledDocument:
    """Let a paused task that has a schedule go on from now."""
    return _schedule_shown(call, await call.app.schedules.pause(*_schedule_named(call), paused=False))


def _schedule_named(call: Call) -> tuple[str, str]:
    """Project and name of the task that the address names, where the caller may do this."""
    project, task = call.path("project"), call.path("task")
    call.check(project, f"task {project}/{task}")
    return project, task


def _schedule_shown(call: Call, scheduled: ScheduledTask) -> ScheduledDocument:
    call.headers["ETag"] = f'"{scheduled.stored.revision}"'
    return scheduled_page(scheduled)


class SchedulePreviewQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as a person writes it."""

    when: str = ""
    """Five cron fields, @daily, @every 1h30m or a date."""
    zone: str = "UTC"


@operations.get(
    "/schedules/preview",
    needs=Role.VIEWER,
    query=SchedulePreviewQuery,
    answer=SchedulePreviewDocument,
    example={
        "schedule": SCHEDULED_EXAMPLE["schedule"],
        "words": SCHEDULED_EXAMPLE["words"],
        "times": [{"at": "2026-12-01T01:30:00.000Z", "local": "2026-12-01T02:30:00+01:00", "clock_change_seconds": 0}],
    },
)
async def preview(call: Call) -> SchedulePreviewDocument:
    """Tell in words when a schedule would fire, and its next ten times; nothing is kept."""
    call.check_own()
    asked: SchedulePreviewQuery = call.query
    _check_zone(asked.zone)
    if not asked.when.strip():
        raise Invalid("when", asked.when, "it must be five cron fields, @daily, @every 1h30m or a date")
    schedule = parse_when(asked.when, asked.zone)
    return schedule_preview_document(schedule, call.app.schedules.preview(schedule))


def _check_zone(zone: str) -> None:
    try:
        zone_named(zone)
    except Invalid as problem:
        raise Invalid("zone", zone, problem.allowed) from problem


class CalendarQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which days of which schedules."""

    since: str = ""
    """The first day, such as 2026-06-01; without, today."""
    days: Annotated[int, msgspec.Meta(ge=1, le=42)] = 7
    zone: str = "UTC"
    """Whose days they are."""
    project: str | None = None
    after: PageCursor | None = None
    limit: Limit = 200


class CalendarDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What fires on which day, schedule by schedule."""

    zone: str
    days: list[CalendarDay]
    lines: list[CalendarLine]
    next: str | None


@operations.get(
    "/schedules/calendar",
    needs=Role.VIEWER,
    query=CalendarQuery,
    answer=CalendarDocument,
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
async def calendar(call: Call) -> CalendarDocument:
    """Tell what fires on which day and what came of it, by project and task; paused tasks are left out.

    A schedule that fires more than four times a day is told by a number for each day.
    """
    asked: CalendarQuery = call.query
    _check_zone(asked.zone)
    days = days_from(asked.since or call.app.schedules.today(asked.zone), asked.days, asked.zone)
    place: Any = decode_names(asked.after, 2)
    wanted = TaskFilter(projects=call.visible(asked.project), paused=False, after=place, limit=asked.limit)
    lines, onward = await call.app.schedules.calendar(wanted, days)
    return CalendarDocument(
        zone=asked.zone,
        days=[calendar_day(day) for day in days],
        lines=[calendar_line(line) for line in lines],
        next=None if onward is None else encode_cursor(onward),
    )
