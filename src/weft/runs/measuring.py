"""Counts the runs that have ended since somebody last asked."""

from __future__ import annotations

from weft import metrics
from weft.clock import SECOND, Clock, Moment, seconds
from weft.db.database import Database
from weft.metrics import Meter
from weft.runs import measure_store

LATE_SECONDS = 2.0
"""An end is counted this long after it was told, so that those whose commit takes a while are counted too."""
MOST_APART = 20_000
"""How far ids may be from the order in which they were committed."""


class Measure:
    """How far this process has counted."""

    def __init__(self, db: Database, meter: Meter, clock: Clock) -> None:
        self._db, self._meter, self._clock = db, meter, clock
        self._upto: Moment = clock() - seconds(LATE_SECONDS)
        self._above = -1

    async def catch_up(self) -> None:
        """Count what has ended since the last time; the first time, what ended since the start of this process."""
        above, after, upto = self._above, self._upto, self._clock() - seconds(LATE_SECONDS)
        if upto <= after:
            return
        self._upto = upto
        bounds = metrics.DISPATCH_SECONDS.buckets, metrics.LATENESS_SECONDS.buckets
        rows = await self._db.read(lambda tx: measure_store.ended(tx, above, after, upto, *bounds))
        self._above = max(0, await self._db.read(measure_store.last_event) - MOST_APART)
        cut = 2 + len(bounds[0]) + 2
        for row in rows:
            self._meter.count(metrics.RUNS_ENDED, row[0], by=int(row[1]))
            self._add(metrics.DISPATCH_SECONDS, list(row[2:cut]))
            self._add(metrics.LATENESS_SECONDS, list(row[cut:]))

    def _add(self, metric: metrics.Metric, found: list[int]) -> None:
        *counts, total = (int(each) for each in found)
        self._meter.add(metric, counts, total / SECOND)
