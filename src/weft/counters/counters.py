"""The front door to counters: totals and recent series, and a loop that folds what was counted into them.

Every process that asks reads the same, and no count falls when one starts again: what is counted are rows, written in
the transaction that stores the items or ends the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from weft.clock import Clock, Moment, seconds
from weft.counters import store
from weft.counters.store import STEPS, TOTAL, CounterEntry, CounterKey, CounterSeries, is_by_time, is_by_worker
from weft.db.database import Database, Transaction

MOST_NAMES = 1_000
"""How many spiders and crawls are counted by themselves; those that come later are counted together, as ``OTHERS``."""
OTHERS = "(others)"
AT_ONCE = 2_000
"""How many entries one transaction folds."""
KEPT = 2
"""How many times as many steps are kept as are shown."""


class FoldLeader(Protocol):
    """Who knows whether this process does the work."""

    async def leads(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CounterTotals:
    """Counts of all time, by project, name of spider or crawl, worker and metric; empty: of all of them."""

    values: Mapping[tuple[str, str, str, str], int]

    def by_name(self, metric: str) -> dict[tuple[str, str], int]:
        """By project and name."""
        return {(of, name): n for (of, name, worker, which), n in self.values.items() if which == metric and not worker}

    def by_worker(self, metric: str) -> dict[str, int]:
        return {worker: n for (_, _, worker, which), n in self.values.items() if which == metric and worker}

    def sum(self, metric: str) -> int:
        return sum(self.by_name(metric).values())

    def metrics(self, begin: str) -> set[str]:
        """The names that begin so."""
        return {metric for _, _, _, metric in self.values if metric.startswith(begin)}


class Counters:
    def __init__(self, db: Database, leader: FoldLeader, clock: Clock) -> None:
        self._db, self._leader, self._clock = db, leader, clock
        self._names: set[tuple[str, str]] = set()

    async def totals(self) -> CounterTotals:
        """How much there was of everything."""

        def work(tx: Transaction) -> CounterTotals:
            found = Counter(store.totals(tx))
            names = {(project, name) for project, name, _, _ in found if name}
            for (step, _, *of, metric), count in _folded(store.unfolded(tx), names).items():
                if step == TOTAL:
                    project, name, worker = of
                    found[project, name, worker, metric] += count
            return CounterTotals(found)

        return await self._db.read(work)

    async def recent(self, projects: Collection[str] | None = None) -> dict[int, CounterSeries]:
        """The counts of the last hour and of the last day, by the length of their steps."""
        now = self._clock()
        firsts = {step: _step_start(now, step) - seconds(step * (count - 1)) for step, count in STEPS.items()}

        def work(tx: Transaction) -> dict[int, CounterSeries]:
            entries = [each for each in store.unfolded(tx) if projects is None or each[1].project in projects]
            fresh = _folded(entries, set())
            found = {}
            for step, first in firsts.items():
                told = [*store.since(tx, step, first, projects), *_of_step(fresh, step)]
                found[step] = _counter_series(first, step, told)
            return found

        return await self._db.read(work)

    async def fold(self) -> int:
        """Fold what was counted since; return how many entries that were."""
        if not await self._db.glance(store.has_unfolded) or not await self._leader.leads():
            return 0
        folded = 0
        while count := await self._db.transact(self._fold):
            folded += count
            if count < AT_ONCE:
                break
        return folded

    def _fold(self, tx: Transaction) -> int:
        taken = store.take(tx, AT_ONCE)
        if any((each.project, each.name) not in self._names for _, each in taken if each.name):
            self._names = store.names(tx)
        store.grow(tx, _folded(taken, set(self._names)))
        return len(taken)

    async def forget_old(self) -> int:
        """Remove the minutes that nobody is shown any more; what they counted stays in the totals."""
        now = self._clock()
        before = {step: _step_start(now, step) - seconds(step * count * KEPT) for step, count in STEPS.items()}
        return await self._db.transact(lambda tx: store.forget(tx, before))


def _folded(entries: Iterable[CounterEntry], names: set[tuple[str, str]]) -> dict[CounterKey, int]:
    """What each count grows by. ``names`` are those that are counted by themselves; it grows, as far as it may."""
    found: Counter[CounterKey] = Counter()
    for at, each in entries:
        name = _named(each.project, each.name, names)
        for metric, count in each.values.items():
            found[TOTAL, 0, each.project, name, "", metric] += count
            if each.worker and is_by_worker(metric):
                found[TOTAL, 0, "", "", each.worker, metric] += count
            if is_by_time(metric):
                for step in STEPS:
                    found[step, _step_start(at, step), each.project, "", "", metric] += count
    return found


def _named(project: str, name: str, names: set[tuple[str, str]]) -> str:
    if not name or (project, name) in names:
        return name
    if len(names) >= MOST_NAMES:
        return OTHERS
    names.add((project, name))
    return name


def _step_start(at: Moment, step: int) -> Moment:
    """When the step began that a moment is in."""
    return at - at % seconds(step)


def _of_step(folded: Mapping[CounterKey, int], step: int) -> list[tuple[Moment, str, int]]:
    return [(at, metric, count) for (which, at, *_, metric), count in folded.items() if which == step]


def _counter_series(first: Moment, step: int, told: Iterable[tuple[Moment, str, int]]) -> CounterSeries:
    found: dict[str, list[int]] = {}
    for at, metric, count in told:
        place = (at - first) // seconds(step)
        if 0 <= place < STEPS[step]:
            found.setdefault(metric, [0] * STEPS[step])[place] += count
    return CounterSeries(first, step, found)
