"""What fires on which day, and what came of it where that day is over.

A schedule that fires often is one line with a number for each day, however often that is: those numbers are worked out,
not counted one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from weft.clock import Moment
from weft.tasks.schedule import Schedule, fires_between, ticks
from weft.tasks.store import Stored
from weft.tasks.times import Day

MOST_A_DAY = 4
"""A schedule that fires more often than this is told by numbers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """A tick that lies ahead, or what came of one."""

    at: Moment
    outcome: str | None = None
    """None where it lies ahead; ``missed`` where it never fired."""
    run_id: int | None = None
    state: str | None = None
    """How the run stands that came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A schedule in a calendar."""

    stored: Stored
    schedule: Schedule
    days: Sequence[int]
    """How often it fires on each day."""
    fires: Sequence[Fire] | None
    """None where it fires too often to name each time."""


def is_frequent(schedule: Schedule, days: Sequence[Day]) -> bool:
    return ticks(schedule).count(days[0].start, days[-1].end) > MOST_A_DAY * len(days)


def line(stored: Stored, schedule: Schedule, days: Sequence[Day], now: Moment, past: Sequence[Any] | None) -> Line:
    """A schedule on these days; ``past`` is what came of its ticks, None where it fires too often to tell."""
    if past is None:
        return Line(stored=stored, schedule=schedule, days=_counted(schedule, days, stored.updated_at), fires=None)
    fires = _fires(stored, schedule, days, now, {row.fire_at: row for row in past})
    counts = [sum(day.start <= fire.at < day.end for fire in fires) for day in days]
    return Line(stored=stored, schedule=schedule, days=counts, fires=fires)


def _counted(schedule: Schedule, days: Sequence[Day], since: Moment) -> Sequence[int]:
    """What was before the task was last changed is not known."""
    counts = _day_counts(schedule, tuple(days))
    return [
        count if since <= day.start else ticks(schedule).count(min(since + 1, day.end), day.end)
        for count, day in zip(counts, days, strict=True)
    ]


@lru_cache(maxsize=2000)
def _day_counts(schedule: Schedule, days: tuple[Day, ...]) -> tuple[int, ...]:
    all_ticks = ticks(schedule)
    return tuple(all_ticks.count(day.start, day.end) for day in days)


def _fires(
    stored: Stored, schedule: Schedule, days: Sequence[Day], now: Moment, past: Mapping[Moment, Any]
) -> list[Fire]:
    start, end = days[0].start, days[-1].end
    waited = now + 1 if stored.next_fire_at is None else min(stored.next_fire_at, now + 1)
    since = max(start, stored.updated_at + 1)
    fires = [
        Fire(at=row.fire_at, outcome=row.outcome, run_id=row.run_id, state=row.state)
        for row in past.values()
        if start <= row.fire_at < end
    ]
    for at in fires_between(schedule, since, end, MOST_A_DAY * len(days)):
        if at not in past and at >= waited:
            fires.append(Fire(at=at))
        elif at not in past:
            fires.append(Fire(at=at, outcome="missed"))
    return sorted(fires, key=lambda fire: fire.at)
