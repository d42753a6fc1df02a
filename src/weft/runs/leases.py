"""Leases: who may execute a run now.

The database side of the worker protocol. A lease is held by a worker that sends heartbeats (``workers/reaper.py``);
its attempt number fences every write, so a worker that was declared lost can change nothing when it wakes. What becomes
of a run when a lease ends is in ``endings.py``. Workers cap what a run prints; who has taken over one need not, so the
live log of each attempt has a quota, counted by each gateway for itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from weft import events
from weft.clock import Clock
from weft.db.batching import Batched
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.runs import lease_store, store
from weft.runs.endings import Endings
from weft.runs.lanes import Lane, queues_for
from weft.runs.lease_store import LeaseHolder
from weft.runs.load_balancing import HESITATION_SECONDS, LeastLoaded, LoadSnapshot, fair_shares
from weft.runs.model import Ending, Lease
from weft.runs.wakeups import Wakeups

MOST_LANES = 200
"""How many lanes are looked at together; with more than that, the next look goes on where this one stopped."""

MOST_LOOKS = 20
"""How often one lease looks on while it has places left."""

MOST_EXPIRED = 200

MOST_DEMANDING_WORKERS = 10_000
"""How many workers that ask here are remembered; beyond it, the oldest are forgotten."""

FINISH_APART_SECONDS = 0.02
"""Nobody waits for the end of a run as closely as for its start."""


@dataclass(frozen=True, slots=True)
class LeaseDemand:
    """A worker that has places free."""

    holder: LeaseHolder
    labels: frozenset[str]
    want: int
    hesitant: bool = False
    """Whether it leaves to less busy workers what is theirs to take."""
    wakes: bool = True
    """Whether it wakes these."""


@dataclass(frozen=True, slots=True)
class LeaseResult:
    """What a worker was given, and how many ready runs it has left to others where that was nothing."""

    leases: list[Lease]
    left_to_others: int


@dataclass(frozen=True, slots=True)
class LaneTurn:
    """One look into a lane, down to a priority, for a project's share or for what the others left."""

    lane_id: int
    share: str | None = None
    floor: int | None = None


class LeaseAllocation:
    """A worker's demand in a batch, and what it has been given."""

    def __init__(self, demand: LeaseDemand) -> None:
        self.holder, self.hesitant, self.wakes = demand.holder, demand.hesitant, demand.wakes
        self.left = demand.want
        self.given: list[Lease] = []
        self.left_to_others = self._withheld = 0

    def withhold(self, share: int, ready: int) -> None:
        """Take no more than ``share`` of the ``ready`` runs for now, and the rest is for others."""
        self._withheld = max(0, self.left - share)
        self.left -= self._withheld
        self.left_to_others += 0 if share else ready

    def release(self) -> None:
        self.left += self._withheld
        self._withheld = 0


class LeaseBatch:
    """Demands that are served together."""

    def __init__(self, allocations: Sequence[LeaseAllocation]) -> None:
        self.allocations = allocations
        self.left = 0
        """How many more runs they can take."""
        self.count()
        self._turns = cycle(allocations)

    def count(self) -> None:
        self.left = sum(allocation.left for allocation in self.allocations)

    def deal(self, count: int) -> list[LeaseAllocation]:
        """Who takes the next ``count`` runs, of those left: one each, round after round."""
        self.left -= count
        dealt: list[LeaseAllocation] = []
        while len(dealt) < count:
            allocation = next(self._turns)
            if allocation.left:
                allocation.left -= 1
                dealt.append(allocation)
        return dealt

    def take_back(self, allocations: Sequence[LeaseAllocation]) -> None:
        """There were fewer runs than were dealt."""
        self.left += len(allocations)
        for allocation in allocations:
            allocation.left += 1


class Leases:
    """Front door for everything that a worker does to runs. What several workers of one process ask for at the same
    time is one transaction."""

    def __init__(self, db: Database, wakeups: Wakeups, clock: Clock) -> None:
        self._db, self._wakeups, self._clock = db, wakeups, clock
        self._endings, self._log_room = Endings(wakeups, clock), LiveLogQuota()
        self._lease_together = Batched(db, self._lease_all, lambda demand: demand.want)
        self._finish_together = Batched(
            db, self._endings.finish, lambda told: len(told[1]), apart_seconds=FINISH_APART_SECONDS
        )
        self._least_loaded = LeastLoaded()
        self._demanding: dict[int, None] = {}
        self._lanes: dict[int, Lane] = {}
        self._served: dict[str, int] = {}
        self._cursor = 0

    async def lease(
        self, worker_id: int, worker: str, labels: Collection[str], want: int, *, hesitant: bool = False
    ) -> list[Lease]:
        """Lease up to ``want`` ready runs that a worker with ``labels`` may serve, shared fairly between projects.

        One that is ``hesitant`` leaves runs to less busy workers, and takes those that are still there a moment later.
        """
        self._demanding[worker_id] = None
        if len(self._demanding) > MOST_DEMANDING_WORKERS:
            del self._demanding[next(iter(self._demanding))]
        demand = LeaseDemand(LeaseHolder(worker_id, worker), frozenset(labels), want, hesitant)
        served = await self._lease_together(demand)
        if not served.left_to_others:
            return served.leases
        until = time.monotonic() + HESITATION_SECONDS
        demand = replace(demand, wakes=False)
        while served.left_to_others:
            if (seconds := until - time.monotonic()) <= 0:
                demand = replace(demand, want=min(want, served.left_to_others), hesitant=False)
            else:
                await self._wakeups.wait(queues_for(labels), seconds)  # what comes meanwhile may be for this one
            served = await self._lease_together(demand)
        return served.leases

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        """End attempts; False for each that ``worker_id`` no longer holds, of which nothing is changed."""
        return await self._finish_together((worker_id, endings))

    async def ship(self, worker_id: int, chunks: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
        """Keep pieces of the logs of runs that ``worker_id`` holds, as far as there is room; others are dropped.

        Returns run and attempt of those that it does not hold.
        """

        def work(tx: Transaction) -> set[tuple[int, int]]:
            mine = lease_store.keep(tx, {chunk["run_id"] for chunk in chunks}, worker_id)
            held = [chunk for chunk in chunks if (chunk["run_id"], chunk["attempt"]) in mine]
            self._log_room.take(tx, lease_store.add_log(tx, held, self._log_room.of(tx, mine)))
            return {(chunk["run_id"], chunk["attempt"]) for chunk in chunks} - mine

        return await self._db.transact(work)

    def expire(self, tx: Transaction, worker_id: int, reason: str, limit: int = MOST_EXPIRED) -> int:
        """End some of the attempts of a worker that is given up for lost; return how many."""
        return self._endings.expire(tx, worker_id, reason, limit)

    def _lease_all(self, tx: Transaction, demands: Sequence[LeaseDemand]) -> list[LeaseResult]:
        """Serve all demands; those with the same labels see the same lanes and are served as one."""
        allocations = [LeaseAllocation(demand) for demand in demands]
        by_labels: dict[frozenset[str], list[LeaseAllocation]] = {}
        for demand, allocation in zip(demands, allocations, strict=True):
            by_labels.setdefault(demand.labels, []).append(allocation)
        for labels, group in by_labels.items():
            self._serve(tx, labels, LeaseBatch(group))
        return [
            LeaseResult(allocation.given, 0 if allocation.given else allocation.left_to_others)
            for allocation in allocations
        ]

    def _serve(self, tx: Transaction, labels: frozenset[str], batch: LeaseBatch) -> None:
        for _ in range(MOST_LOOKS):
            lanes, limited = self._servable(tx, labels)
            keys = {key for lane in lanes.values() for key in lane.limits} if limited else ()
            free = store.free_slots(tx, keys) if keys else {}
            open_lanes = {lane_id: lane for lane_id, lane in lanes.items() if _free_slots(lane, free, 1)}
            if open_lanes:
                shared = self._share(tx, open_lanes, free, batch)
                self._fill(tx, open_lanes, free, batch, shared)
                for allocation in batch.allocations:
                    allocation.release()
                batch.count()
            if not batch.left or not self._cursor:
                return

    def _share(
        self, tx: Transaction, lanes: Mapping[int, Lane], free: Mapping[str, int], batch: LeaseBatch
    ) -> LoadSnapshot | None:
        """Withhold from those who are hesitant what less busy workers could take; return what is shared so."""
        hesitant = {allocation.holder.worker_id: allocation for allocation in batch.allocations if allocation.hesitant}
        if not hesitant:
            return None
        shared = self._least_loaded.shared(tx, lanes, free, hesitant)
        if shared is None:
            return None
        for worker_id, allocation in hesitant.items():
            allocation.withhold(shared.share(worker_id, allocation.left), shared.ready)
        batch.count()
        if (
            not batch.left
            and any(allocation.wakes for allocation in batch.allocations)
            and self._may_not_know(shared, batch)
        ):
            self._wake(tx, lanes, min(shared.ready, len(shared.workers)))
        return shared

    def _may_not_know(self, shared: LoadSnapshot, batch: LeaseBatch) -> bool:
        """Whether only those in the batch may have been woken for these runs."""
        others = shared.workers.keys() - {allocation.holder.worker_id for allocation in batch.allocations}
        return bool(others) and (not self._wakeups.reaches_all or not others.isdisjoint(self._demanding))

    def _wake(self, tx: Transaction, lanes: Mapping[int, Lane], count: int = 1) -> None:
        for queue in {lane.queue for lane in lanes.values()}:
            tx.after_commit(lambda queue=queue: self._wakeups.add(queue, count))  # type: ignore[misc]

    def _servable(self, tx: Transaction, labels: Collection[str]) -> tuple[dict[int, Lane], bool]:
        """Lanes with ready runs that ``labels`` may serve, and whether there is any limit."""
        ids, limited = lease_store.ready_lanes(tx, self._cursor, MOST_LANES)
        if self._cursor and len(ids) < MOST_LANES:
            first, limited = lease_store.ready_lanes(tx, 0, MOST_LANES - len(ids))
            ids += [lane for lane in first if lane not in ids]
        self._cursor = ids[-1] if len(ids) == MOST_LANES else 0
        unknown = [lane for lane in ids if lane not in self._lanes]
        if unknown:
            self._lanes |= store.lanes_by_id(tx, unknown)
        return {lane: self._lanes[lane] for lane in ids if self._lanes[lane].may_be_served_by(labels)}, limited

    def _fill(
        self,
        tx: Transaction,
        lanes: dict[int, Lane],
        free: dict[str, int],
        batch: LeaseBatch,
        shared: LoadSnapshot | None,
    ) -> None:
        """Lease from ``lanes``, whose limits have ``free`` places, until nobody in the batch can take more."""
        if not batch.left:
            return
        at = self._clock()
        facts: list[Fact] = []
        shares, turns = self._plan(tx, batch, lanes)
        for turn in turns:
            lane = lanes[turn.lane_id]
            if not (count := _free_slots(lane, free, min(shares[turn.share], batch.left))):
                continue
            slots = [key for key in lane.limits if key in free]
            allocations = batch.deal(count)
            holders = [allocation.holder for allocation in allocations]
            rows = lease_store.take(tx, turn.lane_id, holders, turn.floor, ",".join(slots) or None, at)
            batch.take_back(allocations[len(rows) :])
            if not rows:
                continue
            store.take_slots(tx, {key: len(rows) for key in slots})
            for key in slots:
                free[key] -= len(rows)
            shares[turn.share] -= len(rows)
            self._note_served(lane.project)
            for row, allocation in zip(rows, allocations, strict=False):
                allocation.given.append(lease_store.lease_of(row))
                facts.append(Fact("run_started", row.project, row.id, row.task_id))
        events.append(tx, facts, at)
        if facts and not batch.left and (shared is None or shared.ready > len(facts)):
            self._wake(tx, lanes)  # there may be more for the next worker

    def _plan(
        self, tx: Transaction, batch: LeaseBatch, lanes: dict[int, Lane]
    ) -> tuple[dict[str | None, int], list[LaneTurn]]:
        """How many places each project has, and the order of lanes; last of all come the places that are left over."""
        if len(lanes) <= 1:
            return {None: batch.left}, [LaneTurn(lane_id) for lane_id in lanes]
        by_project: dict[str, list[int]] = {}
        for lane_id, lane in lanes.items():
            by_project.setdefault(lane.project, []).append(lane_id)
        shares = self._shares(tx, batch, list(by_project))
        heads = lease_store.head_priorities(tx, lanes)
        turns: list[LaneTurn] = []
        for project in shares:
            ordered = sorted((lane for lane in by_project[project] if lane in heads), key=lambda lane: -heads[lane])
            for lane_id, following in zip(ordered, [*ordered[1:], None], strict=True):
                turns.append(LaneTurn(lane_id, project, heads[following] if following is not None else None))
            turns += [LaneTurn(lane_id, project) for lane_id in ordered[:-1]]
        return dict(shares) | {None: batch.left}, turns + [LaneTurn(lane_id) for lane_id in lanes]

    def _shares(self, tx: Transaction, batch: LeaseBatch, projects: list[str]) -> dict[str, int]:
        if len(projects) == 1:
            return {projects[0]: batch.left}
        weights = dict.fromkeys(projects, 1.0) | lease_store.project_weights(tx, projects)
        running = lease_store.running_by_project(tx, {allocation.holder.worker_id for allocation in batch.allocations})
        return dict(Counter(fair_shares(batch.left, weights, running, self._served)))

    def _note_served(self, project: str) -> None:
        self._served[project] = max(self._served.values(), default=0) + 1


def _free_slots(lane: Lane, free: dict[str, int], count: int) -> int:
    return max(0, min([count, *(free[key] for key in lane.limits if key in free)]))


ALLOWANCE = 1_000
"""Bytes past a run's ``log_bytes``, for a line that says what was dropped."""

MOST_LIVE = 15_000_000
"""Bytes of a live log that the database keeps; of a longer one the rest is seen when its attempt has ended."""

MOST_ATTEMPTS = 10_000
"""How many are counted; of more than that, the oldest are asked for again."""

AttemptKey = tuple[int, int]
"""A run and its attempt."""


class LiveLogQuota:
    """The bytes that there is room for, by attempt."""

    def __init__(self) -> None:
        self._left: dict[AttemptKey, int] = {}

    def of(self, tx: Transaction, attempts: Collection[AttemptKey]) -> dict[AttemptKey, int]:
        """The room of ``attempts`` that are held now."""
        unknown = [attempt for attempt in attempts if attempt not in self._left]
        found = lease_store.log_sizes(tx, [run_id for run_id, _ in unknown]) if unknown else {}
        asked = {attempt: min(most, MOST_LIVE) + ALLOWANCE - kept for attempt, (most, kept) in found.items()}
        room = {attempt: self._left.get(attempt, asked.get(attempt, 0)) for attempt in attempts}
        tx.after_commit(lambda: self._remember(asked))
        return room

    def take(self, tx: Transaction, kept: Counter[AttemptKey]) -> None:
        """Count what was kept, once it is durable."""
        tx.after_commit(lambda: self._take(kept))

    def _remember(self, asked: dict[AttemptKey, int]) -> None:
        for attempt, room in asked.items():
            self._left.setdefault(attempt, room)
        while len(self._left) > MOST_ATTEMPTS:
            del self._left[next(iter(self._left))]

    def _take(self, kept: Counter[AttemptKey]) -> None:
        for attempt, size in kept.items():
            if attempt in self._left:
                self._left[attempt] -= size
