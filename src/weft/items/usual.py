"""What is usual for a spider, from what it did lately. Pure: numbers in, numbers out.

The bands are those outside of which ``drift.py`` marks a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from weft.items.drift import FAR, FAST, FEWEST, MOST, SLOW, Profile, median

MOST_LOOKED_AT = 20
"""Among so many of its newest runs a spider that ended well and badly is flaky."""
WELL, BADLY = "succeeded", "failed"


class Band(NamedTuple):
    """Between what a number usually is."""

    low: float
    middle: float
    high: float


class Fill(NamedTuple):
    """In which share of the items a field is filled, run by run, newest first."""

    name: str
    shares: tuple[float, ...]


def is_flaky(states: Sequence[str]) -> bool:
    """Whether the newest of these ended in both ways."""
    return {WELL, BADLY} <= set(states[:MOST_LOOKED_AT])


def items_band(counts: Sequence[float]) -> Band | None:
    """What a number of items is, after these; None where they are too few."""
    if len(known := counts[:MOST]) < FEWEST:
        return None
    middle = median(known)
    return Band(min(*known, middle * (1 - FAR)), middle, max(*known, middle * (1 + FAR)))


def seconds_band(times: Sequence[float]) -> Band | None:
    if len(known := times[:MOST]) < FEWEST:
        return None
    middle = median(known)
    return Band(max(0.0, min(min(known) * FAST, middle - 1)), middle, max(max(known) * SLOW, middle + 1))


def fills(profiles: Iterable[Profile], most: int = 50) -> list[Fill]:
    """How well each field was filled in these runs, newest first; fields that most items have come first."""
    known: list[Mapping[str, float]] = [each.fields for each in profiles if each.items]
    names = {name for fields in known for name in fields}
    found = [Fill(name, tuple(round(fields.get(name, 0.0), 4) for fields in known)) for name in names]
    return sorted(found, key=lambda each: (-sum(each.shares), each.name))[:most]
