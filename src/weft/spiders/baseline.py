"""What is normal for a spider, what is unusual about a finished run beside it, and how healthy spiders are.

A figure is unusual when it lies outside of all that was seen lately *and* far from the middle of it: the first alone
would mark every new maximum, the second alone every spider that varies. A project is as healthy as its worst spider: an
average would hide the one that has failed for a week behind nine that run every minute. Values only, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

FEWEST_COMPARED = 3
"""Of fewer earlier runs nothing can be said."""
MOST_COMPARED = 20
"""How many earlier runs count."""

FAR = 0.3
"""How far from the middle, as a share of it, a number of items is unusual."""
SLOW, FAST = 2.0, 0.5
"""How many times the longest, or the shortest, a duration is unusual."""
FIELD_POINTS = 0.2
STATUS_POINTS = 0.1
"""By how much a share must differ: of the items that have a field, of the responses that have a status."""
MORE_ERRORS = 5


class RunProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One run in figures."""

    items: int
    seconds: float
    errors: int
    fields: Mapping[str, float]
    """For each field the share of the items that have it."""
    statuses: Mapping[str, float]
    """For each HTTP status the share of the responses that had it."""


class DriftMark(msgspec.Struct, frozen=True):
    """One thing that is unusual, and the sentence that says so."""

    what: str
    text: str


def detect_drift(now: RunProfile, before: Sequence[RunProfile]) -> list[DriftMark]:
    """What differs; nothing where too few runs are known."""
    known = list(before[:MOST_COMPARED])
    if len(known) < FEWEST_COMPARED:
        return []
    return [
        *_items(now, known),
        *_duration(now, known),
        *_errors(now, known),
        *_fields(now, known),
        *_statuses(now, known),
    ]


def _items(now: RunProfile, before: Sequence[RunProfile]) -> list[DriftMark]:
    counts = [each.items for each in before]
    middle, low, high = median(counts), min(counts), max(counts)
    outside = not low <= now.items <= high
    if not outside or abs(now.items - middle) <= FAR * middle:
        return []
    return [DriftMark("items", f"{now.items} items; the last {len(before)} runs had {_range(low, high)}")]


def _duration(now: RunProfile, before: Sequence[RunProfile]) -> list[DriftMark]:
    times = [each.seconds for each in before]
    low, high = min(times), max(times)
    if low * FAST <= now.seconds <= high * SLOW or abs(now.seconds - median(times)) < 1:
        return []
    usual = _range(f"{low:.1f}", f"{high:.1f}")
    return [DriftMark("duration", f"{now.seconds:.1f} s; the last {len(before)} runs took {usual} s")]


def _errors(now: RunProfile, before: Sequence[RunProfile]) -> list[DriftMark]:
    most = max(each.errors for each in before)
    if now.errors <= 2 * most + MORE_ERRORS:
        return []
    return [DriftMark("errors", f"{now.errors} errors; the last {len(before)} runs had at most {most}")]


def _fields(now: RunProfile, before: Sequence[RunProfile]) -> list[DriftMark]:
    """Fields that are filled less often than usual, or more often: a page that has changed shows here first."""
    if not now.items:
        return []
    return _shares("field", now, before, lambda profile: profile.fields, FIELD_POINTS, "of the items have {name}")


def _statuses(now: RunProfile, before: Sequence[RunProfile]) -> list[DriftMark]:
    if not now.statuses:
        return []
    return _shares(
        "status", now, before, lambda profile: profile.statuses, STATUS_POINTS, "of the responses are {name}"
    )


def _shares(
    what: str,
    now: RunProfile,
    before: Sequence[RunProfile],
    shares: Callable[[RunProfile], Mapping[str, float]],
    points: float,
    words: str,
) -> list[DriftMark]:
    marks = []
    for name in sorted({name for profile in (now, *before) for name in shares(profile)}):
        share, usual = shares(now).get(name, 0.0), [shares(each).get(name, 0.0) for each in before]
        low, high = min(usual), max(usual)
        if share < low - points or share > high + points:
            said = words.format(name=name)
            marks.append(
                DriftMark(f"{what}:{name}", f"{share:.0%} {said}; before it was {_range(f'{low:.0%}', f'{high:.0%}')}")
            )
    return marks


def median(numbers: Sequence[float]) -> float:
    """Of our own: the library's brings half a megabyte of exact arithmetic along."""
    middle = sorted(numbers)[(len(numbers) - 1) // 2 : len(numbers) // 2 + 1]
    return sum(middle) / len(middle)


def _range(low: object, high: object) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


MOST_BASELINE_RUNS = 20
"""Among so many of its newest runs a spider that ended well and badly is flaky."""
SUCCEEDED, FAILED = "succeeded", "failed"


class NormalRange(NamedTuple):
    """Between what a number usually is."""

    low: float
    middle: float
    high: float


class FieldFill(NamedTuple):
    """In which share of the items a field is filled, run by run, newest first."""

    name: str
    shares: tuple[float, ...]


def is_flaky(states: Sequence[str]) -> bool:
    """Whether the newest of these ended in both ways."""
    return {SUCCEEDED, FAILED} <= set(states[:MOST_BASELINE_RUNS])


def normal_items(counts: Sequence[float]) -> NormalRange | None:
    """What a number of items is, after these; None where they are too few."""
    if len(known := counts[:MOST_COMPARED]) < FEWEST_COMPARED:
        return None
    middle = median(known)
    return NormalRange(min(*known, middle * (1 - FAR)), middle, max(*known, middle * (1 + FAR)))


def normal_seconds(times: Sequence[float]) -> NormalRange | None:
    if len(known := times[:MOST_COMPARED]) < FEWEST_COMPARED:
        return None
    middle = median(known)
    return NormalRange(max(0.0, min(min(known) * FAST, middle - 1)), middle, max(max(known) * SLOW, middle + 1))


def field_fills(profiles: Iterable[RunProfile], most: int = 50) -> list[FieldFill]:
    """How well each field was filled in these runs, newest first; fields that most items have come first."""
    known: list[Mapping[str, float]] = [each.fields for each in profiles if each.items]
    names = {name for fields in known for name in fields}
    found = [FieldFill(name, tuple(round(fields.get(name, 0.0), 4) for fields in known)) for name in names]
    return sorted(found, key=lambda each: (-sum(each.shares), each.name))[:most]


FEWEST_RUNS = 3
"""So many runs in a row say something: that they failed, or that they brought nothing."""


class HealthStatus(StrEnum):
    FAILING = "failing"
    """Its last runs failed in a row, or more than half of them did."""
    NO_ITEMS = "no_items"
    """Its last runs succeeded and brought nothing."""
    FLAKY = "flaky"
    """Some of its last runs failed."""
    HEALTHY = "healthy"
    UNKNOWN = "unknown"
    """None of its runs has ended yet."""


WORST_FIRST = tuple(HealthStatus)
UNHEALTHY = (HealthStatus.FAILING, HealthStatus.NO_ITEMS)
"""What somebody should look at."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How one run came out; ``items`` is None where it yields none, or nobody knows."""

    state: str
    items: int | None


def ended_runs(runs: Iterable[RunResult]) -> list[RunResult]:
    """The newest of them that count, newest first."""
    return [each for each in runs if each.state in (SUCCEEDED, FAILED)][:MOST_BASELINE_RUNS]


def health_of(runs: Sequence[RunResult]) -> HealthStatus:
    """How well whoever had these runs does, newest first."""
    known = ended_runs(runs)
    if not known:
        return HealthStatus.UNKNOWN
    failed = sum(each.state == FAILED for each in known)
    if failures_in_a_row(known) >= min(FEWEST_RUNS, len(known)) or failed * 2 > len(known):
        return HealthStatus.FAILING
    if runs_without_items(known) >= FEWEST_RUNS:
        return HealthStatus.NO_ITEMS
    return HealthStatus.FLAKY if failed else HealthStatus.HEALTHY


def failures_in_a_row(runs: Sequence[RunResult]) -> int:
    """How many of the newest runs failed, one after the other."""
    return next((place for place, each in enumerate(runs) if each.state != FAILED), len(runs))


def runs_without_items(runs: Sequence[RunResult]) -> int:
    """How many of the newest runs that succeeded brought nothing, one after the other."""
    good = [each for each in runs if each.state == SUCCEEDED]
    return next((place for place, each in enumerate(good) if each.items != 0), len(good))


def worst(healths: Iterable[HealthStatus]) -> HealthStatus:
    """What a whole is that has these parts; what has not run yet says nothing of it."""
    return min(healths, key=WORST_FIRST.index, default=HealthStatus.UNKNOWN)
