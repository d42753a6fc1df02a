"""Percentiles of latencies in milliseconds, and how busy the machine was when they were taken."""

import os
from collections.abc import Iterable


class Latencies:
    """What one measurement has seen, from the shortest to the longest."""

    def __init__(self, milliseconds: Iterable[float]) -> None:
        self._values = sorted(milliseconds)

    def __len__(self) -> int:
        return len(self._values)

    def percentile(self, part: float) -> float:
        """The least value that so many per cent do not exceed."""
        last = len(self._values) - 1
        return self._values[min(last, int(len(self._values) * part / 100))]

    @property
    def p50(self) -> float:
        return self.percentile(50)

    @property
    def p99(self) -> float:
        return self.percentile(99)

    @property
    def longest(self) -> float:
        return self._values[-1]


def machine_load() -> str:
    """A busy machine makes every latency longer, so the load stands beside them."""
    now, before, _ = os.getloadavg()
    return f"load average {now:.1f} (5 minutes: {before:.1f}) on {os.cpu_count()} cores"
