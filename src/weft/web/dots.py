"""The dot graph of a project: a dot for each spider, pages to the right, items upwards. Broken ones lie at its foot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 88, 32, 46, 48
SMALLEST, LARGEST = 5.0, 26.0
"""Radius of a dot."""
MOST = 300
FEW, SOME = 3, 20
"""Runs that colours begin at."""


@dataclass(frozen=True, slots=True)
class Dot:
    spider: str
    x: float
    y: float
    radius: float
    runs: int
    pages: float
    """By run."""
    items: float
    seconds: float
    frequency: str
    """How often it runs: few, some or many times lately."""
    is_broken: bool
    """Runs that fetch pages and bring nothing."""


@dataclass(frozen=True, slots=True)
class Tick:
    place: float
    value: int


@dataclass(frozen=True, slots=True)
class Graph:
    dots: Sequence[Dot]
    across: Sequence[Tick]
    upward: Sequence[Tick]


def graph_of(spiders: Sequence[Mapping[str, Any]]) -> Graph:
    """Where each spider that has run stands; both axes grow tenfold by the step, so that small and large ones fit."""
    seen = [each for each in spiders if each["runs"]][:MOST]
    pages, items = [each["pages"] / each["runs"] for each in seen], [each["items"] / each["runs"] for each in seen]
    right, top = _decades(pages), _decades(items)
    longest = max((each["seconds"] for each in seen), default=0.0) or 1.0
    dots = [
        Dot(
            spider=each["spider"],
            x=_across(pages[place], right),
            y=_up(items[place], top),
            radius=round(SMALLEST + (LARGEST - SMALLEST) * math.sqrt(each["seconds"] / longest), 1),
            runs=each["runs"],
            pages=round(pages[place], 1),
            items=round(items[place], 1),
            seconds=each["seconds"],
            frequency="few" if each["runs"] < FEW else "some" if each["runs"] < SOME else "many",
            is_broken=pages[place] > 0 and items[place] == 0,
        )
        for place, each in enumerate(seen)
    ]
    dots.sort(key=lambda each: -each.radius)
    return Graph(dots, [Tick(_across(n, right), n) for n in _ticks(right)], [Tick(_up(n, top), n) for n in _ticks(top)])


def _decades(values: Sequence[float]) -> int:
    return max(1, math.ceil(math.log10(max([*values, 1.0]) + 1)))


def _ticks(decades: int) -> list[int]:
    return [0, *(10**each for each in range(decades + 1))]


def _share(value: float, decades: int) -> float:
    """0 is at the very edge, 1 a step from it."""
    return math.log10(1 + 9 * min(value, 1)) / (decades + 1) if value < 1 else (1 + math.log10(value)) / (decades + 1)


def _across(value: float, decades: int) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * _share(value, decades), 1)


def _up(value: float, decades: int) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(value, decades), 1)
