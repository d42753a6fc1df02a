"""Metrics of runs: what is counted when one ends, and the numbers in the results that they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from weft import metrics
from weft.clock import Clock, Moment, seconds
from weft.counters.store import DISPATCH, ENDED, LATENESS, STATE, CounterIncrement, observed
from weft.db.database import Database
from weft.errors import Invalid
from weft.runs import store
from weft.runs.lease_store import HeldRun
from weft.runs.model import RunOutcome, RunState, Trigger
from weft.runs.store import RunningCounts


def ended_count(project: str, state: RunState, outcome: RunOutcome) -> CounterIncrement:
    """A run that ended without a worker."""
    return CounterIncrement(project, {ENDED + outcome.value: 1, STATE + state.value: 1})


def ended_on_worker_counts(ended: Iterable[tuple[HeldRun, RunState, RunOutcome]]) -> list[CounterIncrement]:
    """Runs that ended on workers, those of one project and worker together; how long each waited until its first
    attempt began, if that was the last as well, and how late its schedule made it."""
    found: dict[tuple[str, str], WorkerEndedCounts] = {}
    for row, state, outcome in ended:
        key = (row.project, row.worker or "")
        counts = found.get(key)
        if counts is None:
            counts = found[key] = WorkerEndedCounts()
        counts.as_what[outcome, state] += 1
        if row.attempt == 1 and row.started_at is not None:
            counts.waited.append(row.started_at - row.queued_at)
        if row.fire_at is not None and row.trigger == Trigger.SCHEDULE.value:
            counts.late.append(row.queued_at - row.fire_at)
    return [CounterIncrement(project, each.values, worker=worker) for (project, worker), each in found.items()]


class WorkerEndedCounts:
    """What is counted of the runs of one project that ended on one worker."""

    __slots__ = ("as_what", "late", "waited")

    def __init__(self) -> None:
        self.as_what: Counter[tuple[RunOutcome, RunState]] = Counter()
        self.waited: list[Moment] = []
        self.late: list[Moment] = []

    @property
    def values(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (outcome, state), count in self.as_what.items():
            found[ENDED + outcome.value] += count
            found[STATE + state.value] += count
        found.update(observed(DISPATCH, metrics.DISPATCH_SECONDS.buckets, self.waited))
        found.update(observed(LATENESS, metrics.LATENESS_SECONDS.buckets, self.late))
        return found


LATE_SECONDS = 2.0
"""A result is read this long after its end was told, so that those whose commit takes a while are read too."""
MOST_APART = 20_000
"""How far ids may be from the order in which they were committed."""
MOST_RUNNING = 2_000
"""Of how many kinds, tasks and workers it is told how many runs run."""


ReportedNumbers = dict[tuple[str, str], dict[str, float]]
"""The numbers that runs say of themselves, by project and task."""


class RunMetrics:
    """How far this process has read."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._above = -1
        self.reported: ReportedNumbers = {}
        self._upto: Moment = 0

    async def catch_up(self) -> None:
        """Take the numbers of runs that have ended; the first time, of those that ended not long before too."""
        after, upto = self._upto, self._clock() - seconds(LATE_SECONDS)
        if upto <= after:
            return
        self._upto = upto
        last = await self._db.read(store.last_event_id)
        newest = max(0, last - MOST_APART)
        above, self._above = newest if self._above < 0 else self._above, newest
        rows = await self._db.read(lambda tx: store.reported_results(tx, above, after, upto, metrics.MOST_CUSTOM))
        for project, task, result in rows:
            if numbers := _numbers(result):
                self.reported.pop((project, task), None)
                self.reported[project, task] = numbers
        while sum(map(len, self.reported.values())) > metrics.MOST_CUSTOM:
            del self.reported[next(iter(self.reported))]

    async def running(self) -> RunningCounts:
        """How many runs run now: of which kind and task, on which worker."""
        return await self._db.read(lambda tx: store.running_counts(tx, MOST_RUNNING))


def _numbers(result: str) -> dict[str, float]:
    """Those in the result of a run; none where an executor says something that is none."""
    try:
        return metrics.numbers_of(msgspec.json.decode(result).get("metrics"))
    except (Invalid, msgspec.DecodeError, AttributeError):
        return {}
