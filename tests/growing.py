"""How what a text costs grows with its length."""

from __future__ import annotations

import time
from collections.abc import Callable

LENGTH, TIMES = 1_000, 8
TOO_MUCH = 3 * TIMES
"""What grows with the square takes 64 times as long for a text of eight times the length."""


def growth(work: Callable[[str], object], unit: str) -> float:
    """How many times as long ``work`` takes for a text that is eight times as long as another one."""
    short, long = (min(_seconds(work, unit * (LENGTH * times // len(unit))) for _ in range(3)) for times in (1, TIMES))
    return long / short


def _seconds(work: Callable[[str], object], text: str) -> float:
    """Of a processor, so that whatever else the machine does counts for nothing."""
    began = time.process_time_ns()
    work(text)
    return max(time.process_time_ns() - began, 1_000) / 1e9
