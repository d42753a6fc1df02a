"""When a task fires, and what happens to ticks that come late or while a run is still going.

A tick is known by its own time. Jitter only delays the run that the tick makes (its ``not before``), never the tick.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import date
from itertools import islice, takewhile
from typing import Any, Literal, get_args

import msgspec

from weft.clock import SECOND, Moment, seconds
from weft.errors import Invalid
from weft.tasks import cron, when, zones
from weft.tasks.ticks import CronTicks, Every, Once, Ticks

Kind = Literal["cron", "every", "once"]
Misfire = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "queue_one", "replace"]

KINDS = ("cron", "every_seconds", "once_at")
SHORTEST, LONGEST = 0.001, 10 * 366 * 86_400
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
    misfire: Misfire = "once"
    """What happens to late ticks: none of them fires, the latest, or all that catch-up allows."""
    catch_up_seconds: float = 86_400
    """A late tick that is older than this never fires."""
    catch_up_cap: int = 100
    """How many ticks fire at once at most; the newest do."""
    overlap: Overlap = "skip"
    """What happens to a tick while the run of an earlier one is not finished."""

    def __post_init__(self) -> None:
        _check_kind(self)
        zones.zone_named(self.zone)
        _check_range("jitter_seconds", self.jitter_seconds, 0, 86_400)
        _check_range("catch_up_seconds", self.catch_up_seconds, 0, LONGEST)
        _check_range("catch_up_cap", self.catch_up_cap, 1, 10_000, whole=True)
        _check_choice("misfire of the schedule", self.misfire, get_args(Misfire))
        _check_choice("overlap of the schedule", self.overlap, get_args(Overlap))

    @property
    def kind(self) -> Kind:
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
            fields |= when.read(fields.pop("when"), fields.get("zone", "UTC"))
        for name in ("once_at", "start_at"):
            if isinstance(fields.get(name), date | str):
                fields[name] = when.moment_of(str(fields[name]), fields.get("zone", "UTC"))
        return cls(**{"start_at": start_at, **fields})


def parse_when(text: str, zone: str = "UTC", *, start_at: Moment = 0) -> Schedule:
    """A schedule from one line: five cron fields, ``@daily``, ``@every 1h30m`` or an ISO 8601 date."""
    return Schedule(zone=zone, start_at=start_at, **when.read(text, zone))


def next_fire(schedule: Schedule, after: Moment) -> Moment | None:
    """The first tick strictly after ``after``; None where there is none."""
    tick = next(ticks(schedule).onward(after + 1), None)
    return tick if tick is None or tick < LAST_MOMENT else None


def next_fires(schedule: Schedule, after: Moment, count: int = 10) -> list[Moment]:
    return fires_between(schedule, after + 1, LAST_MOMENT, count)


def fires_between(schedule: Schedule, start: Moment, end: Moment, limit: int) -> list[Moment]:
    """The ticks from ``start`` up to, not including, ``end``; the first ``limit`` of them."""
    return list(islice(takewhile(lambda tick: tick < end, ticks(schedule).onward(start)), limit))


def jittered(key: str, fire: Moment, jitter_seconds: float) -> Moment:
    """When the run of a tick may start: the same for every scheduler that asks."""
    digest = hashlib.blake2b(f"{key} {fire}".encode(), digest_size=8).digest()
    return fire + (int.from_bytes(digest) * seconds(jitter_seconds) >> 64)


def ticks(schedule: Schedule) -> Ticks:
    if schedule.cron is not None:
        return CronTicks(cron.parse(schedule.cron), schedule.zone)
    if schedule.every_seconds is not None:
        return Every(schedule.start_at, seconds(schedule.every_seconds))
    assert schedule.once_at is not None
    return Once(schedule.once_at)


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
        _check_range("every_seconds", schedule.every_seconds, SHORTEST, LONGEST)
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
