"""Leases: who may execute a run now.

The database side of the worker protocol. A lease is held by a worker that keeps beating (``workers/reaper.py``); its
attempt number fences every write, so a worker that was given up for lost can change nothing when it wakes. What
becomes of a run when a lease ends is in ``endings.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from weft import events
from weft.clock import Clock
from weft.db.database import Database, Transaction
from weft.db.together import Together
from weft.events import Fact
from weft.runs import claim_store, lease_store, limit_store, store
from weft.runs.bell import Bell
from weft.runs.claim_store import Holder
from weft.runs.endings import Endings
from weft.runs.fairness import share
from weft.runs.lanes import Lane
from weft.runs.log_room import LogRoom
from weft.runs.model import Ending, Lease

MOST_LANES = 200
"""How many lanes are looked at together; with more than that, the next look goes on where this one stopped."""

MOST_LOOKS = 20
"""How often one lease looks on while it has places left."""

MOST_EXPIRED = 200

FINISH_APART_SECONDS = 0.02
"""Nobody waits for the end of a run as closely as for its start."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A worker that has places free."""

    holder: Holder
    labels: frozenset[str]
    want: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One look into a lane, down to a priority, for a project's share or for what the others left."""

    lane_id: int
    share: str | None = None
    floor: int | None = None


class Seat:
    """An asker's place at a table, and what it has been given."""

    def __init__(self, asker: Asker) -> None:
        self.holder, self.left = asker.holder, asker.want
        self.given: list[Lease] = []


class Table:
    """Askers that are served together."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self.seats = seats
        self.left = sum(seat.left for seat in seats)
        """How many more runs they can take."""
        self._turns = cycle(seats)

    def deal(self, count: int) -> list[Seat]:
        """Who takes the next ``count`` runs, of those left: one each, round after round."""
        self.left -= count
        dealt: list[Seat] = []
        while len(dealt) < count:
            seat = next(self._turns)
            if seat.left:
                seat.left -= 1
                dealt.append(seat)
        return dealt

    def take_back(self, seats: Sequence[Seat]) -> None:
        """There were fewer runs than were dealt."""
        self.left += len(seats)
        for seat in seats:
            seat.left += 1


class Leases:
    """Front door for everything that a worker does to runs. What several workers of one process ask for at the same
    time is one transaction."""

    def __init__(self, db: Database, bell: Bell, clock: Clock) -> None:
        self._db, self._bell, self._clock = db, bell, clock
        self._endings, self._log_room = Endings(bell, clock), LogRoom()
        self._lease_together = Together(db, self._lease_all, lambda asker: asker.want)
        self._finish_together = Together(
            db, self._endings.finish, lambda told: len(told[1]), apart_seconds=FINISH_APART_SECONDS
        )
        self._lanes: dict[int, Lane] = {}
        self._served: dict[str, int] = {}
        self._cursor = 0

    async def lease(self, worker_id: int, worker: str, labels: Collection[str], want: int) -> list[Lease]:
        """Lease up to ``want`` ready runs that a worker with ``labels`` may serve, shared fairly between projects."""
        return await self._lease_together(Asker(Holder(worker_id, worker), frozenset(labels), want))

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

    def _lease_all(self, tx: Transaction, askers: Sequence[Asker]) -> list[list[Lease]]:
        """Serve all askers; those with the same labels see the same lanes and are served as one."""
        seats = [Seat(asker) for asker in askers]
        alike: dict[frozenset[str], list[Seat]] = {}
        for asker, seat in zip(askers, seats, strict=True):
            alike.setdefault(asker.labels, []).append(seat)
        for labels, group in alike.items():
            self._serve(tx, labels, Table(group))
        return [seat.given for seat in seats]

    def _serve(self, tx: Transaction, labels: frozenset[str], table: Table) -> None:
        for _ in range(MOST_LOOKS):
            lanes, limited = self._servable(tx, labels)
            keys = {key for lane in lanes.values() for key in lane.limits} if limited else ()
            free = limit_store.free_places(tx, keys) if keys else {}
            self._fill(tx, {lane_id: lane for lane_id, lane in lanes.items() if _room(lane, free, 1)}, free, table)
            if not table.left or not self._cursor:
                return

    def _servable(self, tx: Transaction, labels: Collection[str]) -> tuple[dict[int, Lane], bool]:
        """Lanes with ready runs that ``labels`` may serve, and whether there is any limit."""
        ids, limited = claim_store.ready_lanes(tx, self._cursor, MOST_LANES)
        if self._cursor and len(ids) < MOST_LANES:
            first, limited = claim_store.ready_lanes(tx, 0, MOST_LANES - len(ids))
            ids += [lane for lane in first if lane not in ids]
        self._cursor = ids[-1] if len(ids) == MOST_LANES else 0
        unknown = [lane for lane in ids if lane not in self._lanes]
        if unknown:
            self._lanes |= store.lanes_by_id(tx, unknown)
        return {lane: self._lanes[lane] for lane in ids if self._lanes[lane].may_be_served_by(labels)}, limited

    def _fill(self, tx: Transaction, lanes: dict[int, Lane], free: dict[str, int], table: Table) -> None:
        """Lease from ``lanes``, whose limits have ``free`` places, until nobody at the table can take more."""
        at = self._clock()
        facts: list[Fact] = []
        shares, turns = self._plan(tx, table, lanes)
        for turn in turns:
            lane = lanes[turn.lane_id]
            if not (count := _room(lane, free, min(shares[turn.share], table.left))):
                continue
            slots = [key for key in lane.limits if key in free]
            seats = table.deal(count)
            holders = [seat.holder for seat in seats]
            rows = claim_store.take(tx, turn.lane_id, holders, turn.floor, ",".join(slots) or None, at)
            table.take_back(seats[len(rows) :])
            if not rows:
                continue
            limit_store.take_places(tx, {key: len(rows) for key in slots})
            for key in slots:
                free[key] -= len(rows)
            shares[turn.share] -= len(rows)
            self._note_served(lane.project)
            for row, seat in zip(rows, seats, strict=False):
                seat.given.append(claim_store.lease_of(row))
                facts.append(Fact("run_started", row.project, row.id, row.task_id))
        events.append(tx, facts, at)
        if facts and not table.left:  # there may be more: wake the next worker
            for queue in {lane.queue for lane in lanes.values()}:
                tx.after_commit(lambda queue=queue: self._bell.add(queue))  # type: ignore[misc]

    def _plan(self, tx: Transaction, table: Table, lanes: dict[int, Lane]) -> tuple[dict[str | None, int], list[Turn]]:
        """How many places each project has, and the order of lanes; last of all come the places that are left over."""
        if len(lanes) <= 1:
            return {None: table.left}, [Turn(lane_id) for lane_id in lanes]
        by_project: dict[str, list[int]] = {}
        for lane_id, lane in lanes.items():
            by_project.setdefault(lane.project, []).append(lane_id)
        shares = self._shares(tx, table, list(by_project))
        heads = claim_store.head_priorities(tx, lanes)
        turns: list[Turn] = []
        for project in shares:
            ordered = sorted((lane for lane in by_project[project] if lane in heads), key=lambda lane: -heads[lane])
            for lane_id, following in zip(ordered, [*ordered[1:], None], strict=True):
                turns.append(Turn(lane_id, project, heads[following] if following is not None else None))
            turns += [Turn(lane_id, project) for lane_id in ordered[:-1]]
        return dict(shares) | {None: table.left}, turns + [Turn(lane_id) for lane_id in lanes]

    def _shares(self, tx: Transaction, table: Table, projects: list[str]) -> dict[str, int]:
        if len(projects) == 1:
            return {projects[0]: table.left}
        weights = dict.fromkeys(projects, 1.0) | claim_store.weights(tx, projects)
        running = claim_store.running_by_project(tx, {seat.holder.worker_id for seat in table.seats})
        return dict(Counter(share(table.left, weights, running, self._served)))

    def _note_served(self, project: str) -> None:
        self._served[project] = max(self._served.values(), default=0) + 1


def _room(lane: Lane, free: dict[str, int], count: int) -> int:
    return max(0, min([count, *(free[key] for key in lane.limits if key in free)]))
