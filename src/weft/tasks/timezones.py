"""Time zones as periods of one offset each, in whole seconds since 1970 in UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from weft.errors import Invalid

DAY = 86_400
FIRST_YEAR, LAST_YEAR = 1970, 9998

_EPOCH = date(1970, 1, 1).toordinal()
_NAME = re.compile(
    r"(?!posix|right|localtime|Factory)[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}", re.ASCII
)


class OffsetPeriod(NamedTuple):
    """Time from ``start`` up to ``end`` with one ``offset``; ``before`` is the offset of the moment before it.

    A larger offset than before is a gap in wall time (spring), a smaller one repeats wall time (autumn). Stretches are
    also cut at each new year, where both are the same.
    """

    start: int
    end: int
    offset: int
    before: int


def zone_named(name: str) -> ZoneInfo:
    """The zone of an IANA name such as Europe/Berlin."""
    zone = _zone(name) if isinstance(name, str) else None
    if zone is None:
        raise Invalid("the time zone", name, "it must be an IANA time zone such as UTC or Europe/Berlin")
    return zone


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if _NAME.fullmatch(name) else None
    except (KeyError, ValueError, OSError):
        return None


def periods_from(name: str, second: int) -> Iterator[OffsetPeriod]:
    """The stretches from the one that holds ``second`` on."""
    for year in range(_year(second), LAST_YEAR + 1):
        for stretch in periods_of_year(name, year):
            if stretch.end > second:
                yield stretch


def periods_back_from(name: str, second: int) -> Iterator[OffsetPeriod]:
    """The stretches from the one that holds ``second`` back to 1970."""
    for year in range(_year(second), FIRST_YEAR - 1, -1):
        for stretch in reversed(periods_of_year(name, year)):
            if stretch.start <= second:
                yield stretch


@lru_cache(maxsize=4096)
def periods_of_year(name: str, year: int) -> tuple[OffsetPeriod, ...]:
    """The stretches of one year of UTC."""
    zone = zone_named(name)
    start, end = _new_year(year), _new_year(year + 1)
    before = _offset(zone, start - 1)
    found: list[OffsetPeriod] = []
    for change in [*_offset_changes(zone, start, end), end]:
        offset = _offset(zone, start)
        found.append(OffsetPeriod(start, change, offset, before))
        start, before = change, offset
    return tuple(found)


def wall_clock(name: str, second: int) -> datetime:
    """What a clock in the zone shows."""
    return datetime.fromtimestamp(second, zone_named(name))


def second_at_wall_clock(name: str, wall: int) -> int:
    """When a clock in the zone first shows ``wall``, in seconds since its 1970; the end of the gap if it never does."""
    for stretch in periods_from(name, wall - 2 * DAY):
        if wall - stretch.offset < stretch.end:
            return max(wall - stretch.offset, stretch.start)
    raise Invalid("the date", wall, f"it must be before the year {LAST_YEAR + 1}")


def _offset_changes(zone: ZoneInfo, start: int, end: int) -> Iterator[int]:
    """The seconds inside ``start`` to ``end`` at which the offset changes; no zone changes twice on a day."""
    for day in range(start, end, DAY):
        before, after = _offset(zone, day), _offset(zone, day + DAY)
        if before != after:
            change = _offset_change(zone, day, day + DAY, before)
            if change < end:
                yield change


def _offset_change(zone: ZoneInfo, low: int, high: int, before: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    return high


def _offset(zone: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    assert offset is not None
    return offset.days * DAY + offset.seconds


def _year(second: int) -> int:
    """The year of ``second``, or the nearest that is counted here."""
    day = min(max(second // DAY, 0), _new_year(LAST_YEAR + 1) // DAY - 1)
    return date.fromordinal(day + _EPOCH).year


def _new_year(year: int) -> int:
    return (date(year, 1, 1).toordinal() - _EPOCH) * DAY
