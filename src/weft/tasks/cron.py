"""Cron expressions: five fields, each checked by name, kept as bit masks over wall time.

Wall time is what a clock on the wall shows, counted in whole minutes since 1970-01-01 00:00 of that clock. Nothing here
knows time zones; ``schedule.py`` turns wall time into moments. What the fields mean is left to cronsim, which follows
Debian's cron: a day must match both day fields where one of them starts with ``*``, and either of them otherwise.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

from weft.errors import Invalid

DAY = 1440
LONGEST = 1000
QUIET_YEARS = 50
"""The rarest date, a 29 February on a given weekday, comes back within 40 years."""

_EPOCH = date(1970, 1, 1).toordinal()
_ANY = datetime(2000, 1, 1, tzinfo=UTC)
_TWINS = {(calendar.isleap(year), date(year, 1, 1).weekday()): year for year in range(2000, 2028)}

DayFields = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class CronField:
    name: str
    meaning: Field
    highest: int
    allowed: str


FIELDS = (
    CronField("minute", Field.MINUTE, 59, "numbers from 0 to 59, * and */5, ranges as 0-30 and lists as 0,30"),
    CronField("hour", Field.HOUR, 23, "numbers from 0 to 23, * and */2, ranges as 8-17 and lists as 6,18"),
    CronField("day of month", Field.DAY, 31, "numbers from 1 to 31, *, ranges, lists, L (last day), LW (last weekday)"),
    CronField("month", Field.MONTH, 12, "numbers from 1 to 12 or JAN to DEC, *, ranges and lists"),
    CronField("day of week", Field.DOW, 7, "0 to 7 (0 and 7 are Sunday) or SUN to SAT, *, ranges, lists, 5L, MON#2"),
)
SHAPE = "it must have five fields: minute, hour, day of month, month, day of week"


@dataclass(frozen=True, slots=True)
class Cron:
    """One expression. ``follows_elapsed`` where minute or hour is a wildcard: it then ignores clock changes."""

    expression: str
    minutes: int
    days: DayFields
    follows_elapsed: bool

    def first(self, wall: int) -> int | None:
        """The first matching minute at or after ``wall``."""
        day, minute = divmod(wall, DAY)
        found = self._first_day(day)
        if found == day:
            if later := self.minutes >> minute:
                return wall + _lowest(later)
            found = self._first_day(day + 1)
        return None if found is None else found * DAY + _lowest(self.minutes)

    def last(self, wall: int) -> int | None:
        """The last matching minute at or before ``wall``."""
        day, minute = divmod(wall, DAY)
        found = self._last_day(day)
        if found == day:
            if earlier := self.minutes & _below(minute + 1):
                return day * DAY + _highest(earlier)
            found = self._last_day(day - 1)
        return None if found is None else found * DAY + _highest(self.minutes)

    def count(self, start: int, end: int) -> int:
        """How many minutes match from ``start`` up to, not including, ``end``; by arithmetic, however far apart."""
        if end <= start:
            return 0
        origin, _ = _year_and_day(start // DAY)
        return self._rank(end, origin) - self._rank(start, origin)

    def _rank(self, wall: int, origin: int) -> int:
        day, minute = divmod(wall, DAY)
        year, number = _year_and_day(day)
        whole = sum(_days_in(self.days, _twin(before)).bit_count() for before in range(origin, year))
        mask = _days_in(self.days, _twin(year))
        whole += (mask & _below(number)).bit_count()
        today = (self.minutes & _below(minute)).bit_count() if mask >> number & 1 else 0
        return whole * self.minutes.bit_count() + today

    def _first_day(self, day: int) -> int | None:
        year, number = _year_and_day(day)
        for ahead in range(year, min(year + QUIET_YEARS, MAXYEAR) + 1):
            if mask := _days_in(self.days, _twin(ahead)) >> number:
                return _new_year(ahead) + number + _lowest(mask)
            number = 0
        return None

    def _last_day(self, day: int) -> int | None:
        year, number = _year_and_day(day)
        mask = _days_in(self.days, _twin(year)) & _below(number + 1)
        for behind in range(year, year - QUIET_YEARS - 1, -1):
            if mask:
                return _new_year(behind) + _highest(mask)
            mask = _days_in(self.days, _twin(behind - 1))
        return None


def parse(expression: str) -> Cron:
    """The checked expression; ``Invalid`` names the field that is wrong."""
    if not isinstance(expression, str) or len(expression) > LONGEST:
        raise Invalid("the cron expression", expression, f"it must be a text of at most {LONGEST} characters")
    return _parse(expression)


@lru_cache(maxsize=16_384)
def _parse(expression: str) -> Cron:
    parts = _split(expression)
    for field, part in zip(FIELDS, parts, strict=True):
        _check(field, part)
    minute, hour, *days = parts
    cron = Cron(
        expression=" ".join(parts),
        minutes=_minutes_of_day(minute, hour),
        days=(days[0], days[1], days[2]),
        follows_elapsed=minute.startswith("*") or hour.startswith("*"),
    )
    if not any(_days_in(cron.days, year) for year in _TWINS.values()):
        raise Invalid("the day of the cron expression", expression, "no month of it has such a day")
    return cron


def _split(expression: str) -> list[str]:
    if not all(" " <= letter <= "~" or letter == "\t" for letter in expression):
        raise Invalid("the cron expression", expression, "it must be plain ASCII on one line")
    parts = expression.upper().split()
    if len(parts) != len(FIELDS):
        raise Invalid("the cron expression", expression, f"{SHAPE}; this has {len(parts)}")
    return parts


def _check(field: CronField, part: str) -> None:
    what = f"the {field.name} field of the cron expression"
    for term in part.split(","):
        whole, slash, step = term.partition("/")
        if slash and not (step.isdigit() and 1 <= int(step) <= field.highest and "L" not in _named(whole)):
            raise Invalid(what, part, f"a step is a number from 1 to {field.highest} after *, a number or a range")
        if _goes_down(field, whole):
            raise Invalid(what, part, f"a range goes from the lower to the higher: {field.allowed}")
    try:
        field.meaning.parse(part)
    except CronSimError as error:
        raise Invalid(what, part, f"it takes {field.allowed}") from error


def _named(whole: str) -> str:
    """The text without the month whose name has an L in it."""
    return whole.replace("JUL", "")


def _goes_down(field: CronField, whole: str) -> bool:
    low, dash, high = whole.partition("-")
    try:
        return bool(dash) and field.meaning.int(low) > field.meaning.int(high)
    except CronSimError:
        return False


@lru_cache(maxsize=4096)
def _minutes_of_day(minute: str, hour: str) -> int:
    """A bit for each minute of the day that matches."""
    an_hour = sum(1 << number for number in Field.MINUTE.parse(minute) if isinstance(number, int))
    return sum(an_hour << 60 * number for number in Field.HOUR.parse(hour) if isinstance(number, int))


@lru_cache(maxsize=8192)
def _days_in(days: DayFields, year: int) -> int:
    """A bit for each day of ``year`` that matches."""
    try:
        rule = CronSim(f"0 0 {' '.join(days)}", _ANY)
    except CronSimError:
        return 0
    mask, new_year = 0, date(year, 1, 1).toordinal()
    for number in range(365 + calendar.isleap(year)):
        day = date.fromordinal(new_year + number)
        if day.month in rule.months and rule.match_day(day):
            mask |= 1 << number
    return mask


@lru_cache(maxsize=512)
def _twin(year: int) -> int:
    """The year from 2000 to 2027 with the same calendar, so that no more than 14 are ever worked out."""
    return _TWINS[calendar.isleap(year), date(year, 1, 1).weekday()]


@lru_cache(maxsize=512)
def _new_year(year: int) -> int:
    return date(year, 1, 1).toordinal() - _EPOCH


def _year_and_day(day: int) -> tuple[int, int]:
    year = date.fromordinal(day + _EPOCH).year
    return year, day - _new_year(year)


def _below(count: int) -> int:
    return (1 << count) - 1


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _highest(mask: int) -> int:
    return mask.bit_length() - 1
