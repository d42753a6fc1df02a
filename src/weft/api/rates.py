"""How often one caller may ask."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from weft.api.problems import Refused

MOST_CALLERS = 10_000
BURST_SECONDS = 2.0
"""How many seconds' worth of requests may come at once."""


class Rates:
    """A bucket for each caller that fills with time; each request takes one drop. 0 a second means no limit."""

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._now = per_second, now
        self._buckets: dict[str, tuple[float, float]] = {}

    def check(self, caller: str) -> None:
        """Count one request of ``caller``; refuse it where there were too many."""
        if not self._per_second:
            return
        most, now = self._per_second * BURST_SECONDS, self._now()
        level, at = self._buckets.get(caller, (most, now))
        level = min(most, level + (now - at) * self._per_second)
        if level < 1:
            seconds = max(1, math.ceil((1 - level) / self._per_second))
            raise Refused(
                "too_many_requests",
                f"more than {self._per_second:g} requests a second came from you; try again in {seconds} s",
                retry_after_seconds=seconds,
            )
        if caller not in self._buckets and len(self._buckets) >= MOST_CALLERS:
            self._forget_full(most, now)
        self._buckets[caller] = (level - 1, now)

    def _forget_full(self, most: float, now: float) -> None:
        """Drop those who have asked nothing for so long that they start anew anyway; else the one who came first."""
        idle = [name for name, (level, at) in self._buckets.items() if level + (now - at) * self._per_second >= most]
        for name in idle or [next(iter(self._buckets))]:
            del self._buckets[name]
