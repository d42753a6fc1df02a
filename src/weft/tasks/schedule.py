"""The schedule of a task: cron, interval or one date, its ticks, and what happens to ticks that come late.

A tick is known by its own time. Jitter only delays the run that the tick makes (its ``not before``), never the tick.

What clock changes do to cron is the rule of Debian's cron. Fixed times that a spring change skips tick once, at the
end of the gap. Fixed times that an autumn change repeats tick once, the first time round. An expression whose minute
or hour starts with ``*`` ticks at each real minute whose wall time matches. Intervals follow elapsed time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count, islice, takewhile
from typing import Any, Literal, Protocol, get_args

import msgspec

from weft.clock import SECOND, Moment, seconds
from weft.errors import Invalid
from weft.tasks import cron, timezones
from weft.tasks.cron import QUIET_YEARS, Cron
from weft.tasks.timezones import DAY, OffsetPeriod, periods_back_from, periods_from

MINUTE = 60
QUIET = QUIET_YEARS * 366 * DAY


class Ticks(Protocol):
    """Moments in order. Every method costs the same for the next minute and for a year of outage."""

    def onward(self, at: Moment) -> Iterator[Moment]:
        """Each tick at or after ``at``, the earliest first."""

    def backward(self, at: Moment) -> Iterator[Moment]:
        """Each tick at or before ``at``, the latest first."""

    def count(self, start: Moment, end: Moment) -> int:
        """How many ticks lie from ``start`` up to, not including, ``end``."""


@dataclass(frozen=True, slots=True)
class OnceTicks:
    at: Moment

    def onward(self, at: Moment) -> Iterator[Moment]:
        return iter((self.at,) if at <= self.at else ())

    def backward(self, at: Moment) -> Iterator[Moment]:
        return iter((self.at,) if self.at <= at else ())

    def count(self, start: Moment, end: Moment) -> int:
        return int(start <= self.at < end)


@dataclass(frozen=True, slots=True)
class IntervalTicks:
    """A tick at ``start`` and after each ``period`` since."""

    start: Moment
    period: Moment

    def onward(self, at: Moment) -> Iterator[Moment]:
        return count(self.start + self._passed(at) * self.period, self.period)

    def backward(self, at: Moment) -> Iterator[Moment]:
        last = (at - self.start) // self.period
        return (self.start + number * self.period for number in range(last, -1, -1))

    def count(self, start: Moment, end: Moment) -> int:
        return max(0, self._passed(end) - self._passed(start))

    def _passed(self, at: Moment) -> int:
        """How many ticks lie before ``at``."""
        return max(0, -((self.start - at) // self.period))


@dataclass(frozen=True, slots=True)
class CronTicks:
    cron: Cron
    zone: str

    def onward(self, at: Moment) -> Iterator[Moment]:
        start = -(-at // SECOND)
        quiet_until = start + QUIET
        for stretch in periods_from(self.zone, start):
            if stretch.start > quiet_until:
                return
            for second in self._rising(stretch, max(start, stretch.start)):
                quiet_until = second + QUIET
                yield second * SECOND

    def backward(self, at: Moment) -> Iterator[Moment]:
        end = at // SECOND + 1
        for stretch in periods_back_from(self.zone, end - 1):
            for second in self._falling(stretch, min(end, stretch.end)):
                yield second * SECOND

    def count(self, start: Moment, end: Moment) -> int:
        first, beyond = -(-start // SECOND), -(-end // SECOND)
        total = 0
        for stretch in periods_from(self.zone, first):
            if stretch.start >= beyond:
                break
            total += self.cron.count(*self._walls(stretch, max(first, stretch.start), min(beyond, stretch.end)))
            total += first <= stretch.start and self._ends_a_gap(stretch)
        return total

    def _rising(self, stretch: OffsetPeriod, start: int) -> Iterator[int]:
        if start == stretch.start and self._ends_a_gap(stretch):
            yield start
        low, high = self._walls(stretch, start, stretch.end)
        wall = self.cron.first(low)
        while wall is not None and wall < high:
            yield wall * MINUTE - stretch.offset
            wall = self.cron.first(wall + 1)

    def _falling(self, stretch: OffsetPeriod, end: int) -> Iterator[int]:
        low, high = self._walls(stretch, stretch.start, end)
        wall = self.cron.last(high - 1)
        while wall is not None and wall >= low:
            yield wall * MINUTE - stretch.offset
            wall = self.cron.last(wall - 1)
        if self._ends_a_gap(stretch):
            yield stretch.start

    def _walls(self, stretch: OffsetPeriod, start: int, end: int) -> tuple[int, int]:
        """The wall minutes from ``start`` up to ``end`` that may tick, without those that are shown a second time."""
        low = start + stretch.offset
        if not self.cron.follows_elapsed:
            low = max(low, stretch.start + stretch.before)
        return _minute_from(low), _minute_from(end + stretch.offset)

    def _ends_a_gap(self, stretch: OffsetPeriod) -> bool:
        """True where a fixed time was skipped just before and the end of the gap is not a tick of its own."""
        if self.cron.follows_elapsed or stretch.before >= stretch.offset:
            return False
        skipped = self.cron.first(_minute_from(stretch.start + stretch.before))
        end = stretch.start + stretch.offset
        if skipped is None or skipped >= _minute_from(end):
            return False
        return end % MINUTE != 0 or self.cron.first(end // MINUTE) != end // MINUTE


def _minute_from(second: int) -> int:
    return -(-second // MINUTE)


MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""The units of an interval, in milliseconds."""

_EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"\d{4}-\d", re.ASCII)
_SPAN = re.compile("".join(rf"(?:(\d{{1,9}}(?:\.\d{{1,3}})?){unit})?" for unit in UNITS), re.ASCII)


def parse_time(text: object, zone: str = "UTC") -> dict[str, Any]:
    """The one field of a schedule that ``text`` gives: cron, every_seconds or once_at."""
    if isinstance(text, date):  # what YAML and TOML make of an unquoted date
        text = text.isoformat()
    if not isinstance(text, str):
        raise Invalid("the time of the schedule", text, "it must be a text such as '@every 5m'")
    words = text.strip()
    if words.startswith("@"):
        return _macro(words)
    if _DATE.match(words):
        return {"once_at": moment_of(words, zone)}
    cron.parse(words)
    return {"cron": words}


def moment_of(text: str, zone: str = "UTC") -> Moment:
    """The moment of an ISO 8601 date; without an offset it is read on a clock in ``zone``."""
    try:
        shown = datetime.fromisoformat(text)
    except ValueError as error:
        raise Invalid(
            "the date", text, "it must be in ISO 8601, such as 2026-12-01 08:00 or 2026-12-01T08:00Z"
        ) from error
    if not timezones.FIRST_YEAR <= shown.year <= timezones.LAST_YEAR:
        raise Invalid("the date", text, f"it must be from {timezones.FIRST_YEAR} to {timezones.LAST_YEAR}")
    if shown.tzinfo is not None:
        return (shown - _EPOCH_TIME) // timedelta(microseconds=1)
    timezones.zone_named(zone)
    wall = (shown.replace(tzinfo=UTC) - _EPOCH_TIME) // timedelta(seconds=1)
    return timezones.second_at_wall_clock(zone, wall) * SECOND + shown.microsecond


def _macro(text: str) -> dict[str, Any]:
    name, _, span = text.partition(" ")
    if name.lower() == "@every":
        return {"every_seconds": span_seconds(span.strip())}
    expression = MACROS.get(text.lower())
    if expression is None:
        raise Invalid("the time of the schedule", text, f"it must be one of @every 5m, {', '.join(MACROS)}")
    return {"cron": expression}


def span_seconds(text: str) -> float:
    """The seconds of a span such as 90s, 5m or 1h30m."""
    found = _SPAN.fullmatch(text)
    if not text or found is None:
        raise Invalid(
            "the interval", text, "it must be a span such as 90s, 5m, 1h30m, 2d or 250ms, the largest unit first"
        )
    return sum(float(number or 0) * unit for number, unit in zip(found.groups(), UNITS.values(), strict=True)) / 1000


ScheduleKind = Literal["cron", "every", "once"]
MisfirePolicy = Literal["skip", "once", "all"]
OverlapPolicy = Literal["allow", "skip", "queue_one", "replace"]

KINDS = ("cron", "every_seconds", "once_at")
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.001, 10 * 366 * 86_400
LAST_MOMENT: Moment = 253_370_764_800 * SECOND
"""The first moment of the year 9999, before which every tick lies."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One of: a cron expression, an interval, one date. A schedule that exists has been checked."""

    cron: str | None = None
    every_seconds: float | None = None
    once_at: Moment | None = None

    start_at: Moment = 0
    """The first tick of an interval; the others are counted from it."""
    zone: str = "UTC"
    """Whose clock a cron expression is read on, and in which all times are told."""

    jitter_seconds: float = 0
    """Each run waits a part of this after its tick; which part depends on schedule and tick only."""
    misfire: MisfirePolicy = "once"
    """What happens to late ticks: none of them fires, the latest, or all that catch-up allows."""
    catch_up_seconds: float = 86_400
    """A late tick that is older than this never fires."""
    catch_up_cap: int = 100
    """How many ticks fire at once at most; the newest do."""
    overlap: OverlapPolicy = "skip"
    """What happens to a tick while the run of an earlier one is not finished."""

    def __post_init__(self) -> None:
        _check_kind(self)
        timezones.zone_named(self.zone)
        _check_range("jitter_seconds", self.jitter_seconds, 0, 86_400)
        _check_range("catch_up_seconds", self.catch_up_seconds, 0, LONGEST_INTERVAL)
        _check_range("catch_up_cap", self.catch_up_cap, 1, 10_000, whole=True)
        _check_choice("misfire of the schedule", self.misfire, get_args(MisfirePolicy))
        _check_choice("overlap of the schedule", self.overlap, get_args(OverlapPolicy))

    @property
    def kind(self) -> ScheduleKind:
        if self.cron is not None:
            return "cron"
        return "every" if self.every_seconds is not None else "once"

    @classmethod
    def parse(cls, given: object, *, start_at: Moment = 0) -> Schedule:
        """A schedule from what a person wrote: a text as ``parse_when`` reads, or a table of the fields above.

        A table may say ``when`` instead of ``cron``, ``every_seconds`` or ``once_at``, and give moments as dates.
        """
        if isinstance(given, str):
            return parse_when(given, start_at=start_at)
        if not isinstance(given, Mapping):
            raise Invalid("the schedule", given, "it must be a text such as '@every 5m' or a table of settings")
        fields = dict(given)
        for key in fields:
            _check_choice("a setting of the schedule", key, ("when", *cls.__struct_fields__))
        if "when" in fields:
            _check_alone(fields)
            fields |= parse_time(fields.pop("when"), fields.get("zone", "UTC"))
        for name in ("once_at", "start_at"):
            if isinstance(fields.get(name), date | str):
                fields[name] = moment_of(str(fields[name]), fields.get("zone", "UTC"))
        return cls(**{"start_at": start_at, **fields})


def parse_when(text: str, zone: str = "UTC", *, start_at: Moment = 0) -> Schedule:
    """A schedule from one line: five cron fields, ``@daily``, ``@every 1h30m`` or an ISO 8601 date."""
    return Schedule(zone=zone, start_at=start_at, **parse_time(text, zone))


def next_fire(schedule: Schedule, after: Moment) -> Moment | None:
    """The first tick strictly after ``after``; None where there is none."""
    tick = next(ticks_of(schedule).onward(after + 1), None)
    return tick if tick is None or tick < LAST_MOMENT else None


def as_of(schedule: Schedule, set_at: Moment, now: Moment) -> Schedule:
    """The schedule where the clock was set back after it was set: an interval that had begun then has begun now."""
    if schedule.every_seconds is None or not now < schedule.start_at <= set_at:
        return schedule
    period = seconds(schedule.every_seconds)
    return msgspec.structs.replace(schedule, start_at=schedule.start_at % period)


def next_fires(schedule: Schedule, after: Moment, count: int = 10) -> list[Moment]:
    return fires_between(schedule, after + 1, LAST_MOMENT, count)


def fires_between(schedule: Schedule, start: Moment, end: Moment, limit: int) -> list[Moment]:
    """The ticks from ``start`` up to, not including, ``end``; the first ``limit`` of them."""
    return list(islice(takewhile(lambda tick: tick < end, ticks_of(schedule).onward(start)), limit))


def jittered(key: str, fire: Moment, jitter_seconds: float) -> Moment:
    """When the run of a tick may start: the same for every scheduler that asks."""
    digest = hashlib.blake2b(f"{key} {fire}".encode(), digest_size=8).digest()
    return fire + (int.from_bytes(digest) * seconds(jitter_seconds) >> 64)


def ticks_of(schedule: Schedule) -> Ticks:
    if schedule.cron is not None:
        return CronTicks(cron.parse(schedule.cron), schedule.zone)
    if schedule.every_seconds is not None:
        return IntervalTicks(schedule.start_at, seconds(schedule.every_seconds))
    assert schedule.once_at is not None
    return OnceTicks(schedule.once_at)


def _check_alone(fields: Mapping[str, object]) -> None:
    given = [name for name in ("when", *KINDS) if name in fields]
    if len(given) != 1:
        raise Invalid("the kind of the schedule", given, f"it must have exactly one of when, {', '.join(KINDS)}")


def _check_kind(schedule: Schedule) -> None:
    given = [name for name in KINDS if getattr(schedule, name) is not None]
    if len(given) != 1:
        raise Invalid("the kind of the schedule", given, f"it must have exactly one of {', '.join(KINDS)}")
    if schedule.cron is not None:
        cron.parse(schedule.cron)
    if schedule.every_seconds is not None:
        _check_range("every_seconds", schedule.every_seconds, SHORTEST_INTERVAL, LONGEST_INTERVAL)
    if schedule.once_at is not None:
        _check_moment("once_at", schedule.once_at)
    _check_moment("start_at", schedule.start_at)


def _check_range(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        number = "a whole number" if whole else "a number"
        raise Invalid(f"{name} of the schedule", value, f"it must be {number} from {low} to {high}")


def _check_moment(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LAST_MOMENT:
        raise Invalid(f"{name} of the schedule", value, "it must be a date from 1970 to 9998")


def _check_choice(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise Invalid(what, value, f"it must be one of {', '.join(allowed)}")
