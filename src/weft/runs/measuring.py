"""Counts the runs that have ended since somebody last asked."""

from __future__ import annotations

import msgspec

from weft import metrics
from weft.clock import SECOND, Clock, Moment, seconds
from weft.db.database import Database
from weft.errors import Invalid
from weft.metrics import Meter
from weft.runs import measure_store

LATE_SECONDS = 2.0
"""An end is counted this long after it was told, so that those whose commit takes a while are counted too."""
MOST_APART = 20_000
"""How far ids may be from the order in which they were committed."""


Reported = dict[tuple[str, str], dict[str, float]]
"""The numbers that runs say of themselves, by project and task."""


class Measure:
    """How far this process has counted."""

    def __init__(self, db: Database, meter: Meter, clock: Clock) -> None:
        self._db, self._meter, self._clock = db, meter, clock
        self._upto: Moment = clock() - seconds(LATE_SECONDS)
        self._above = -1
        self.reported: Reported = {}
        self._reported_upto: Moment = 0

    async def catch_up(self) -> None:
        """Count what has ended since the last time; the first time, what ended since the start of this process."""
        above, after, upto = self._above, self._upto, self._clock() - seconds(LATE_SECONDS)
        if upto <= after:
            return
        self._upto = upto
        bounds = metrics.DISPATCH_SECONDS.buckets, metrics.LATENESS_SECONDS.buckets
        rows = await self._db.read(lambda tx: measure_store.ended(tx, above, after, upto, *bounds))
        last = await self._db.read(measure_store.last_event)
        self._above = max(0, last - MOST_APART)
        cut = 2 + len(bounds[0]) + 2
        for row in rows:
            self._meter.count(metrics.RUNS_ENDED, row[0], by=int(row[1]))
            self._add(metrics.DISPATCH_SECONDS, list(row[2:cut]))
            self._add(metrics.LATENESS_SECONDS, list(row[cut:]))
        await self._look_at_reports(self._above if above < 0 else above, upto)

    async def _look_at_reports(self, above: int, upto: Moment) -> None:
        """Take the numbers of runs that have ended; the first time, of those that ended not long before too."""
        after = self._reported_upto
        rows = await self._db.read(lambda tx: measure_store.reported(tx, above, after, upto, metrics.MOST_CUSTOM))
        self._reported_upto = upto
        for project, task, result in rows:
            if numbers := _numbers(result):
                self.reported.pop((project, task), None)
                self.reported[project, task] = numbers
        while sum(map(len, self.reported.values())) > metrics.MOST_CUSTOM:
            del self.reported[next(iter(self.reported))]

    def _add(self, metric: metrics.Metric, found: list[int]) -> None:
        *counts, total = (int(each) for each in found)
        self._meter.add(metric, counts, total / SECOND)


def _numbers(result: str) -> dict[str, float]:
    """Those in the result of a run; none where an executor says something that is none."""
    try:
        return metrics.numbers_of(msgspec.json.decode(result).get("metrics"))
    except (Invalid, msgspec.DecodeError, AttributeError):
        return {}
