"""The calendar of schedules: what fires on which day, on a clock of the schedule's zone, and what came of past ticks.

A schedule that fires often is one row with a number for each day, however often that is: those numbers are worked out,
not counted one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from typing import Any

from weft.clock import SECOND, Moment, seconds
from weft.errors import Invalid
from weft.tasks.schedule import Schedule, fires_between, ticks_of
from weft.tasks.store import StoredTask
from weft.tasks.timezones import FIRST_YEAR, LAST_YEAR, second_at_wall_clock, wall_clock

MOST_PAST_TICKS = 500
"""How many of the newest ticks are looked at for some that never fired."""
LOOK_BACK: Moment = seconds(7 * 86_400)

_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class FireTime:
    """One tick: the moment, what a clock of the schedule's zone shows, and by how much that clock was set forward (or
    back: negative) since the time before."""

    at: Moment
    local: str
    clock_change_seconds: int


@dataclass(frozen=True, slots=True)
class MissedTicks:
    """Ticks in a row that never fired."""

    first: Moment
    last: Moment
    count: int


@dataclass(frozen=True, slots=True)
class DaySpan:
    """A day of a calendar, from its first moment up to the first of the next."""

    date: str
    start: Moment
    end: Moment


def fire_times(moments: Sequence[Moment], zone: str, now: Moment) -> list[FireTime]:
    shown = [wall_clock(zone, at // SECOND) for at in (now, *moments)]
    offsets = [each.utcoffset() or timedelta() for each in shown]
    return [
        FireTime(at, wall.isoformat(), round((offset - before).total_seconds()))
        for at, wall, before, offset in zip(moments, shown[1:], offsets, offsets[1:], strict=False)
    ]


def days_from(text: str, count: int, zone: str) -> list[DaySpan]:
    """The days of a calendar from a date on, as a clock in ``zone`` counts them."""
    first = first_day(text)
    starts = [second_at_wall_clock(zone, (first.toordinal() - _EPOCH + number) * _DAY) for number in range(count + 1)]
    return [
        DaySpan((first + timedelta(days=number)).isoformat(), start * SECOND, end * SECOND)
        for number, (start, end) in enumerate(pairwise(starts))
    ]


def first_day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not FIRST_YEAR < day.year < LAST_YEAR:
        raise Invalid("since", text, f"it must be a date such as 2026-06-01, from {FIRST_YEAR + 1} to {LAST_YEAR - 1}")
    return day


def past_ticks(schedule: Schedule, start: Moment, end: Moment) -> list[Moment]:
    """The newest ticks from ``start`` up to, not including, ``end``; the latest first, and not more than are looked
    at."""
    return list(islice(takewhile(lambda tick: tick >= start, ticks_of(schedule).backward(end - 1)), MOST_PAST_TICKS))


def missed_ticks(expected: Sequence[Moment], known: set[Moment]) -> list[MissedTicks]:
    """What of the ``expected`` ticks is not ``known``, in rows; both go from the latest back."""
    return list(_missed_ticks(expected, known))


def _missed_ticks(expected: Sequence[Moment], known: set[Moment]) -> Iterator[MissedTicks]:
    row: list[Moment] = []
    for at in expected:
        if at not in known:
            row.append(at)
        elif row:
            yield MissedTicks(row[-1], row[0], len(row))
            row = []
    if row:
        yield MissedTicks(row[-1], row[0], len(row))


MOST_A_DAY = 4
"""A schedule that fires more often than this is told by numbers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTick:
    """A tick that lies ahead, or what came of one."""

    at: Moment
    outcome: str | None = None
    """None where it lies ahead; ``missed`` where it never fired."""
    run_id: int | None = None
    state: str | None = None
    """How the run stands that came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRow:
    """A schedule in a calendar."""

    stored: StoredTask
    schedule: Schedule
    days: Sequence[int]
    """How often it fires on each day."""
    fires: Sequence[PlannedTick] | None
    """None where it fires too often to name each time."""


def is_frequent(schedule: Schedule, days: Sequence[DaySpan]) -> bool:
    return ticks_of(schedule).count(days[0].start, days[-1].end) > MOST_A_DAY * len(days)


def calendar_row(
    stored: StoredTask, schedule: Schedule, days: Sequence[DaySpan], now: Moment, past: Sequence[Any] | None
) -> CalendarRow:
    """A schedule on these days; ``past`` is what came of its ticks, None where it fires too often to tell."""
    if past is None:
        return CalendarRow(
            stored=stored, schedule=schedule, days=_counts_by_day(schedule, days, stored.updated_at), fires=None
        )
    fires = _planned_ticks(stored, schedule, days, now, {row.fire_at: row for row in past})
    counts = [sum(day.start <= fire.at < day.end for fire in fires) for day in days]
    return CalendarRow(stored=stored, schedule=schedule, days=counts, fires=fires)


def _counts_by_day(schedule: Schedule, days: Sequence[DaySpan], since: Moment) -> Sequence[int]:
    """What was before the task was last changed is not known."""
    counts = _day_counts(schedule, tuple(days))
    return [
        count if since <= day.start else ticks_of(schedule).count(min(since + 1, day.end), day.end)
        for count, day in zip(counts, days, strict=True)
    ]


@lru_cache(maxsize=2000)
def _day_counts(schedule: Schedule, days: tuple[DaySpan, ...]) -> tuple[int, ...]:
    all_ticks = ticks_of(schedule)
    return tuple(all_ticks.count(day.start, day.end) for day in days)


def _planned_ticks(
    stored: StoredTask, schedule: Schedule, days: Sequence[DaySpan], now: Moment, past: Mapping[Moment, Any]
) -> list[PlannedTick]:
    start, end = days[0].start, days[-1].end
    waited = now + 1 if stored.next_fire_at is None else min(stored.next_fire_at, now + 1)
    since = max(start, stored.updated_at + 1)
    fires = [
        PlannedTick(at=row.fire_at, outcome=row.outcome, run_id=row.run_id, state=row.state)
        for row in past.values()
        if start <= row.fire_at < end
    ]
    for at in fires_between(schedule, since, end, MOST_A_DAY * len(days)):
        if at not in past and at >= waited:
            fires.append(PlannedTick(at=at))
        elif at not in past:
            fires.append(PlannedTick(at=at, outcome="missed"))
    return sorted(fires, key=lambda fire: fire.at)
