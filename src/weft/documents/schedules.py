"""Schedules of tasks as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft.clock import iso
from weft.documents.copying import Time, copied
from weft.documents.tasks import ScheduleDocument, TickDocument, tick_document
from weft.tasks.calendar import Fire, Line
from weft.tasks.schedule import Schedule
from weft.tasks.schedules import Scheduled
from weft.tasks.times import Day, FireTime
from weft.tasks.words import sentence


class FireDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One tick that lies ahead."""

    at: Time | None
    local: str
    """What a clock of the schedule's zone shows then."""
    clock_change_seconds: int
    """By how much that clock is set forward (or back: negative) between the time before, or now, and this one."""


class GapDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks in a row that never fired."""

    first_at: Time | None
    last_at: Time | None
    count: int


class PreviewDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that no task has yet."""

    schedule: ScheduleDocument
    words: str
    times: list[FireDocument]


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
    times: list[FireDocument] | msgspec.UnsetType = msgspec.UNSET
    """Its next ten times, on a clock of its zone."""
    gaps: list[GapDocument] | msgspec.UnsetType = msgspec.UNSET
    """What never fired of its newest 500 ticks within a week, since the task was last changed."""


def scheduled_document(scheduled: Scheduled) -> ScheduledDocument:
    stored = scheduled.stored
    return ScheduledDocument(
        project=stored.task.project,
        task=stored.task.name,
        schedule=copied(ScheduleDocument, scheduled.schedule),
        words=sentence(scheduled.schedule),
        paused=stored.task.paused,
        next_fire_at=iso(stored.next_fire_at),
        next=[iso(at) for at in scheduled.ahead],
        missed=stored.missed,
        last_tick=tick_document(scheduled.ticks[0]) if scheduled.ticks else None,
        revision=stored.revision,
        updated_at=iso(stored.updated_at),
    )


def scheduled_page(scheduled: Scheduled) -> ScheduledDocument:
    """The schedule with its newest ticks."""
    ticks = [tick_document(each) for each in scheduled.ticks]
    gaps = [GapDocument(first_at=iso(gap.first), last_at=iso(gap.last), count=gap.count) for gap in scheduled.gaps]
    times = [fire_document(each) for each in scheduled.times]
    return msgspec.structs.replace(scheduled_document(scheduled), ticks=ticks, times=times, gaps=gaps)


def fire_document(fire: FireTime) -> FireDocument:
    return FireDocument(at=iso(fire.at), local=fire.local, clock_change_seconds=fire.clock_change_seconds)


def preview_document(schedule: Schedule, times: Sequence[FireTime]) -> PreviewDocument:
    shown = copied(ScheduleDocument, schedule)
    return PreviewDocument(schedule=shown, words=sentence(schedule), times=[fire_document(each) for each in times])


def line_document(line: Line) -> CalendarLine:
    task = line.stored.task
    fires = None if line.fires is None else [_calendar_fire(fire) for fire in line.fires]
    days = list(line.days)
    return CalendarLine(project=task.project, task=task.name, words=sentence(line.schedule), days=days, fires=fires)


def day_document(day: Day) -> CalendarDay:
    return CalendarDay(date=day.date, start_at=iso(day.start), end_at=iso(day.end))


def _calendar_fire(fire: Fire) -> CalendarFire:
    return CalendarFire(at=iso(fire.at), outcome=fire.outcome, run_id=fire.run_id, state=fire.state)
