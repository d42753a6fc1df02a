"""Which worker gets a run, and how its free slots are shared between projects.

A run goes to the worker with the smallest part of its slots taken; of equals, to the one whose turn it is. Workers ask
for runs, nobody sends them any. So one that is busier than another that could take the run leaves it to that one for a
moment (``HESITATION_SECONDS``); if it is still there then, it takes it all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from weft.db.database import Transaction
from weft.runs import lease_store
from weft.runs.lanes import Lane


def fair_shares(
    want: int, ready: Mapping[str, float], running: Mapping[str, int], served: Mapping[str, int]
) -> list[str]:
    """Name the project for each of ``want`` places, in order.

    ``ready`` has the weight of each project with waiting runs, ``running`` what the worker holds of each, ``served`` a
    number that is higher the later a project was last given a place. The project furthest below its share comes first;
    of equals, the one that has waited longest.
    """
    held = {project: float(running.get(project, 0)) for project in ready}
    last = {project: served.get(project, -1) for project in ready}
    turn = max(last.values(), default=0) + 1
    places: list[str] = []
    for _ in range(want if ready else 0):
        chosen = min(ready, key=lambda project: ((held[project] + 1) / ready[project], last[project]))
        places.append(chosen)
        held[chosen] += 1
        last[chosen] = turn
        turn += 1
    return places


HESITATION_SECONDS = 0.1
"""How long a run is left to a worker that is less busy. It waits so long only where that one does not come for it."""

MOST_COMPARED = 64
"""In a fleet with more workers, whoever is free first is as good, and looking at all of them would cost too much."""

MOST_TURNS = 16
"""Among so many workers, those that are equally busy take turns; among more, whoever comes first."""

MOST_COUNTED_APART = 20
"""How many lanes with a limit have their ready runs counted one by one."""

KNOWN_SECONDS = 1.0
"""How soon it is noticed that a worker has come or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    """How busy a worker is."""

    worker_id: int
    capacity: int
    running: int
    newest_run: int
    """The newest that it has had; 0 where that is long ago."""

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.running)


def runs_for(me: WorkerLoad, others: Sequence[WorkerLoad], ready: int, want: int) -> int:
    """How many of ``ready`` runs are for ``me``, and at most ``want``, where each is for whoever is least busy then."""
    given = 0
    while given < want and given + sum(_before(me, given + 1, other) for other in others) < ready:
        given += 1
    return given


def _before(me: WorkerLoad, count: int, other: WorkerLoad) -> int:
    """How many runs ``other`` gets before ``me`` gets the run that is its ``count``-th."""
    reached = (me.running + count) * other.capacity
    turn_of_other = (other.newest_run, other.worker_id) < (me.newest_run, me.worker_id)
    return max(0, min(other.free, (reached if turn_of_other else reached - 1) // me.capacity - other.running))


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """What is to be shared by those that could take it."""

    ready: int
    """How many runs are ready, as far as it matters."""
    workers: Mapping[int, WorkerLoad]

    def share(self, worker_id: int, want: int) -> int:
        """How many of them are for that worker, of those it wants."""
        me = self.workers.get(worker_id)
        if me is None:
            return want
        others = [load for load in self.workers.values() if load.worker_id != worker_id]
        return runs_for(me, others, self.ready, want)


class LeastLoaded:
    """Knows who is there, and finds out how busy they are where that matters."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known: list[lease_store.AvailableWorker] = []
        self._known_since = float("-inf")

    def shared(
        self, tx: Transaction, lanes: Mapping[int, Lane], free: Mapping[str, int], asking: Collection[int]
    ) -> LoadSnapshot | None:
        """What ``lanes`` have ready, and who could take it; None where all may be taken by whoever asks for it."""
        able = [each for each in self._workers(tx, asking) if _may_serve(each, lanes.values())]
        if not 1 < len(able) <= MOST_COMPARED:
            return None
        most = sum(each.capacity for each in able)
        limited = [lane_id for lane_id, lane in lanes.items() if not free.keys().isdisjoint(lane.limits)]
        apart = limited[:MOST_COUNTED_APART]
        running, ready = lease_store.held_and_ready(
            tx, [each.worker_id for each in able], [lane_id for lane_id in lanes if lane_id not in apart], most
        )
        for lane_id in apart:
            room = min(free[key] for key in lanes[lane_id].limits if key in free)
            ready += lease_store.count_ready(tx, [lane_id], min(most, room))
        if ready >= most:
            return None
        newest = lease_store.newest_runs(tx) if len(able) <= MOST_TURNS else {}
        loads = [
            WorkerLoad(
                worker_id=each.worker_id,
                capacity=each.capacity,
                running=running.get(each.worker_id, 0),
                newest_run=newest.get(each.name, 0),
            )
            for each in able
        ]
        return (
            None
            if ready >= sum(load.free for load in loads)
            else LoadSnapshot(ready, {load.worker_id: load for load in loads})
        )

    def _workers(self, tx: Transaction, asking: Collection[int]) -> list[lease_store.AvailableWorker]:
        now = self._monotonic()
        if now - self._known_since > KNOWN_SECONDS or not {each.worker_id for each in self._known} >= set(asking):
            self._known, self._known_since = lease_store.available_workers(tx), now
        return self._known


def _may_serve(worker: lease_store.AvailableWorker, lanes: Collection[Lane]) -> bool:
    return any(lane.may_be_served_by(worker.labels) for lane in lanes)
