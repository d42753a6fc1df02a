"""What is unusual about a finished run, beside the runs of the same spider before it. Values only, no I/O.

A figure is unusual when it lies outside of all that was seen lately *and* far from the middle of it: the first alone
would mark every new maximum, the second alone every spider that varies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

FEWEST = 3
"""Of fewer earlier runs nothing can be said."""
MOST = 20
"""How many earlier runs count."""

FAR = 0.3
"""How far from the middle, as a share of it, a number of items is unusual."""
SLOW, FAST = 2.0, 0.5
"""How many times the longest, or the shortest, a duration is unusual."""
FIELD_POINTS = 0.2
STATUS_POINTS = 0.1
"""By how much a share must differ: of the items that have a field, of the responses that have a status."""
MORE_ERRORS = 5


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One run in figures."""

    items: int
    seconds: float
    errors: int
    fields: Mapping[str, float]
    """For each field the share of the items that have it."""
    statuses: Mapping[str, float]
    """For each HTTP status the share of the responses that had it."""


class Mark(msgspec.Struct, frozen=True):
    """One thing that is unusual, and the sentence that says so."""

    what: str
    text: str


def drift(now: Profile, before: Sequence[Profile]) -> list[Mark]:
    """What differs; nothing where too few runs are known."""
    known = list(before[:MOST])
    if len(known) < FEWEST:
        return []
    return [
        *_items(now, known),
        *_duration(now, known),
        *_errors(now, known),
        *_fields(now, known),
        *_statuses(now, known),
    ]


def _items(now: Profile, before: Sequence[Profile]) -> list[Mark]:
    counts = [each.items for each in before]
    middle, low, high = median(counts), min(counts), max(counts)
    outside = not low <= now.items <= high
    if not outside or abs(now.items - middle) <= FAR * middle:
        return []
    return [Mark("items", f"{now.items} items; the last {len(before)} runs had {_range(low, high)}")]


def _duration(now: Profile, before: Sequence[Profile]) -> list[Mark]:
    times = [each.seconds for each in before]
    low, high = min(times), max(times)
    if low * FAST <= now.seconds <= high * SLOW or abs(now.seconds - median(times)) < 1:
        return []
    usual = _range(f"{low:.1f}", f"{high:.1f}")
    return [Mark("duration", f"{now.seconds:.1f} s; the last {len(before)} runs took {usual} s")]


def _errors(now: Profile, before: Sequence[Profile]) -> list[Mark]:
    most = max(each.errors for each in before)
    if now.errors <= 2 * most + MORE_ERRORS:
        return []
    return [Mark("errors", f"{now.errors} errors; the last {len(before)} runs had at most {most}")]


def _fields(now: Profile, before: Sequence[Profile]) -> list[Mark]:
    """Fields that are filled less often than usual, or more often: a page that has changed shows here first."""
    if not now.items:
        return []
    return _shares("field", now, before, lambda profile: profile.fields, FIELD_POINTS, "of the items have {name}")


def _statuses(now: Profile, before: Sequence[Profile]) -> list[Mark]:
    if not now.statuses:
        return []
    return _shares(
        "status", now, before, lambda profile: profile.statuses, STATUS_POINTS, "of the responses are {name}"
    )


def _shares(
    what: str,
    now: Profile,
    before: Sequence[Profile],
    shares: Callable[[Profile], Mapping[str, float]],
    points: float,
    words: str,
) -> list[Mark]:
    marks = []
    for name in sorted({name for profile in (now, *before) for name in shares(profile)}):
        share, usual = shares(now).get(name, 0.0), [shares(each).get(name, 0.0) for each in before]
        low, high = min(usual), max(usual)
        if share < low - points or share > high + points:
            said = words.format(name=name)
            marks.append(
                Mark(f"{what}:{name}", f"{share:.0%} {said}; before it was {_range(f'{low:.0%}', f'{high:.0%}')}")
            )
    return marks


def median(numbers: Sequence[float]) -> float:
    """Of our own: the library's brings half a megabyte of exact arithmetic along."""
    middle = sorted(numbers)[(len(numbers) - 1) // 2 : len(numbers) // 2 + 1]
    return sum(middle) / len(middle)


def _range(low: object, high: object) -> str:
    return f"{low}" if low == high else f"{low} to {high}"
