"""The times of a schedule as people read them: on a clock of its zone, with the changes of that clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice, pairwise, takewhile

from weft.clock import SECOND, Moment, seconds
from weft.errors import Invalid
from weft.tasks.schedule import Schedule, ticks
from weft.tasks.zones import FIRST_YEAR, LAST_YEAR, on_the_wall, second_of

MOST_LOOKED_AT = 500
"""How many of the newest ticks are looked at for some that never fired."""
LOOKED_BACK: Moment = seconds(7 * 86_400)

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
class Gap:
    """Ticks in a row that never fired."""

    first: Moment
    last: Moment
    count: int


@dataclass(frozen=True, slots=True)
class Day:
    """A day of a calendar, from its first moment up to the first of the next."""

    date: str
    start: Moment
    end: Moment


def fire_times(moments: Sequence[Moment], zone: str, now: Moment) -> list[FireTime]:
    shown = [on_the_wall(zone, at // SECOND) for at in (now, *moments)]
    offsets = [each.utcoffset() or timedelta() for each in shown]
    return [
        FireTime(at, wall.isoformat(), round((offset - before).total_seconds()))
        for at, wall, before, offset in zip(moments, shown[1:], offsets, offsets[1:], strict=False)
    ]


def days_from(text: str, count: int, zone: str) -> list[Day]:
    """The days of a calendar from a date on, as a clock in ``zone`` counts them."""
    first = first_day(text)
    starts = [second_of(zone, (first.toordinal() - _EPOCH + number) * _DAY) for number in range(count + 1)]
    return [
        Day((first + timedelta(days=number)).isoformat(), start * SECOND, end * SECOND)
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


def decided(schedule: Schedule, start: Moment, end: Moment) -> list[Moment]:
    """The newest ticks from ``start`` up to, not including, ``end``; the latest first, and not more than are looked
    at."""
    return list(islice(takewhile(lambda tick: tick >= start, ticks(schedule).backward(end - 1)), MOST_LOOKED_AT))


def gaps(expected: Sequence[Moment], known: set[Moment]) -> list[Gap]:
    """What of the ``expected`` ticks is not ``known``, in rows; both go from the latest back."""
    return list(_gaps(expected, known))


def _gaps(expected: Sequence[Moment], known: set[Moment]) -> Iterator[Gap]:
    row: list[Moment] = []
    for at in expected:
        if at not in known:
            row.append(at)
        elif row:
            yield Gap(row[-1], row[0], len(row))
            row = []
    if row:
        yield Gap(row[-1], row[0], len(row))
