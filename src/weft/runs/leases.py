"""Leases: who may execute a run now, and what becomes of it when that ends.

The database side of the worker protocol. A lease is held by a worker that keeps beating (``workers/reaper.py``); its
attempt number fences every write, so a worker that was given up for lost can change nothing when it wakes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft import events
from weft.clock import Clock, Moment, seconds
from weft.db.database import Database, Raced, Transaction
from weft.errors import Invalid, LeaseLost
from weft.events import Fact
from weft.runs import lease_store, store
from weft.runs.bell import Bell
from weft.runs.fairness import share
from weft.runs.lanes import Lane
from weft.runs.model import ENDED, Ending, Lease, Outcome, Retry, RunState, Verdict, judge, storable

MOST_LANES = 200
"""How many lanes are looked at together; with more than that, the next look goes on where this one stopped."""

MOST_LOOKS = 20
"""How often one lease looks on when all of them are blocked."""

TOLD = ("succeeded", "failed", "timeout", "cancelled", "released")
"""The outcomes that are a worker's to tell."""

NO_RETRY = Retry()

SECONDS_APART, MOST_APART = 0.3, 3.0
"""Between runs that come back one by one: more than a scheduler takes to look, less than a lost run may wait in all."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One look into a lane, down to a priority, for a project's share or for what the others left."""

    lane_id: int
    share: str | None = None
    floor: int | None = None


class Leases:
    """Front door for everything that a worker does to runs."""

    def __init__(self, db: Database, bell: Bell, clock: Clock) -> None:
        self._db, self._bell, self._clock = db, bell, clock
        self._lanes: dict[int, Lane] = {}
        self._served: dict[int, dict[str, int]] = {}
        self._cursor = 0

    async def lease(self, worker_id: int, worker: str, labels: Collection[str], want: int) -> list[Lease]:
        """Lease up to ``want`` ready runs that a worker with ``labels`` may serve, shared fairly between projects."""
        return await self._db.transact(lambda tx: self._lease(tx, worker_id, worker, labels, want))

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        """End attempts; False for each that ``worker_id`` no longer holds, of which nothing is changed."""
        return await self._db.transact(lambda tx: self._finish(tx, worker_id, endings))

    async def ship(self, worker_id: int, chunks: Sequence[dict[str, Any]]) -> None:
        """Keep pieces of the logs of runs that ``worker_id`` holds; others are dropped."""

        def work(tx: Transaction) -> None:
            mine = lease_store.keep(tx, {chunk["run_id"] for chunk in chunks}, worker_id)
            lease_store.add_log(tx, [chunk for chunk in chunks if (chunk["run_id"], chunk["attempt"]) in mine])

        await self._db.transact(work)

    def expire(self, tx: Transaction, worker_id: int, reason: str, limit: int = 200) -> int:
        """End some of the attempts of a worker that is given up for lost; return how many."""
        rows = lease_store.held_by(tx, worker_id, limit)
        self._end(tx, _lost(rows, reason), {row.id: row for row in rows})
        return len(rows)

    def _lease(self, tx: Transaction, worker_id: int, worker: str, labels: Collection[str], want: int) -> list[Lease]:
        lanes, free = self._open_lanes(tx, labels)
        at = self._clock()
        leased: list[tuple[Lease, int | None]] = []
        shares, turns = self._plan(tx, worker_id, lanes, want)
        for turn in turns:
            lane = lanes[turn.lane_id]
            if not (count := _room(lane, free, min(shares[turn.share], want - len(leased)))):
                continue
            slots = [key for key in lane.limits if key in free]
            got = lease_store.lease(
                tx,
                turn.lane_id,
                count,
                turn.floor,
                worker_id=worker_id,
                worker=worker,
                slots=",".join(slots) or None,
                at=at,
            )
            if got is None:
                raise LeaseLost(worker)
            shares[turn.share] -= len(got)
            lease_store.take_places(tx, {key: len(got) for key in slots})
            for key in slots:
                free[key] -= len(got)
            self._note_served(worker_id, lane.project, len(got))
            leased += got
        events.append(tx, [Fact("run_started", lease.project, lease.run_id, task, None) for lease, task in leased], at)
        if len(leased) == want:  # there may be more: wake the next worker
            for queue in {lane.queue for lane in lanes.values()}:
                tx.after_commit(lambda queue=queue: self._bell.add(queue))  # type: ignore[misc]
        return [lease for lease, _ in leased]

    def _open_lanes(self, tx: Transaction, labels: Collection[str]) -> tuple[dict[int, Lane], dict[str, int]]:
        """Lanes that may be served now, and the places left under their limits; blocked ones are passed over."""
        for _ in range(MOST_LOOKS):
            lanes = self._servable(tx, labels)
            free = lease_store.free_places(tx, {key for lane in lanes.values() for key in lane.limits}) if lanes else {}
            lanes = {lane_id: lane for lane_id, lane in lanes.items() if _room(lane, free, 1)}
            if lanes or not self._cursor:
                break
        return lanes, free

    def _servable(self, tx: Transaction, labels: Collection[str]) -> dict[int, Lane]:
        ids = lease_store.ready_lanes(tx, self._cursor, MOST_LANES)
        if self._cursor and len(ids) < MOST_LANES:
            ids += [lane for lane in lease_store.ready_lanes(tx, 0, MOST_LANES - len(ids)) if lane not in ids]
        self._cursor = ids[-1] if len(ids) == MOST_LANES else 0
        unknown = [lane for lane in ids if lane not in self._lanes]
        if unknown:
            self._lanes |= store.lanes_by_id(tx, unknown)
        return {lane: self._lanes[lane] for lane in ids if self._lanes[lane].may_be_served_by(labels)}

    def _plan(
        self, tx: Transaction, worker_id: int, lanes: dict[int, Lane], want: int
    ) -> tuple[dict[str | None, int], list[Turn]]:
        """How many places each project has, and the order of lanes; last of all come the places that are left over."""
        if len(lanes) <= 1:
            return {None: want}, [Turn(lane_id) for lane_id in lanes]
        by_project: dict[str, list[int]] = {}
        for lane_id, lane in lanes.items():
            by_project.setdefault(lane.project, []).append(lane_id)
        shares = self._shares(tx, worker_id, list(by_project), want)
        heads = lease_store.head_priorities(tx, lanes)
        turns: list[Turn] = []
        for project in shares:
            ordered = sorted((lane for lane in by_project[project] if lane in heads), key=lambda lane: -heads[lane])
            for lane_id, following in zip(ordered, [*ordered[1:], None], strict=True):
                turns.append(Turn(lane_id, project, heads[following] if following is not None else None))
            turns += [Turn(lane_id, project) for lane_id in ordered[:-1]]
        return dict(shares) | {None: want}, turns + [Turn(lane_id) for lane_id in lanes]

    def _shares(self, tx: Transaction, worker_id: int, projects: list[str], want: int) -> dict[str, int]:
        if len(projects) == 1:
            return {projects[0]: want}
        weights = dict.fromkeys(projects, 1.0) | lease_store.weights(tx, projects)
        running = lease_store.running_by_project(tx, worker_id)
        return dict(Counter(share(want, weights, running, self._served.get(worker_id, {}))))

    def _note_served(self, worker_id: int, project: str, count: int) -> None:
        if count:
            served = self._served.setdefault(worker_id, {})
            served[project] = max(served.values(), default=0) + 1

    def _finish(self, tx: Transaction, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        rows = lease_store.held(tx, [ending.run_id for ending in endings], worker_id)
        mine: dict[tuple[int, int], Ending] = {}
        for ending in endings:
            if ending.run_id in rows and rows[ending.run_id].attempt == ending.attempt:
                mine.setdefault((ending.run_id, ending.attempt), _kept(ending))
        self._end(tx, list(mine.values()), rows)
        return [(ending.run_id, ending.attempt) in mine for ending in endings]

    def _end(self, tx: Transaction, endings: Sequence[Ending], rows: dict[int, Any]) -> None:
        """Write what each ending means for its run. ``rows`` were read at the endings' attempts; if one of them has
        changed since, all of this is done again."""
        at = self._clock()
        retries = lease_store.retries(tx, [e.run_id for e in endings if e.outcome != Outcome.SUCCEEDED.value])
        verdicts = [(e, rows[e.run_id], _judge(e, rows, retries.get(e.run_id, NO_RETRY))) for e in endings]
        again = [(e, row, verdict) for e, row, verdict in verdicts if verdict.state is RunState.QUEUED]
        changed = lease_store.end(
            tx,
            [_run_row(ending, row, verdict, at) for ending, row, verdict in verdicts],
            [_attempt_row(ending, row, verdict, at) for ending, row, verdict in again],
        )
        if changed != len(verdicts):
            raise Raced(f"{len(verdicts) - changed} of {len(verdicts)} runs changed hands")
        freed: Counter[str] = Counter()
        for _, row, _ in verdicts:
            freed.update(row.slots.split(",") if row.slots else ())
        lease_store.take_places(tx, {key: -count for key, count in freed.items()})
        lease_store.drop_logs(tx, [(e.run_id, e.attempt) for e in endings if e.log_key])
        events.append(tx, [_fact(row, verdict) for _, row, verdict in verdicts], at)
        self._ring_for(tx, verdicts)

    def _ring_for(self, tx: Transaction, verdicts: Sequence[tuple[Ending, Any, Verdict]]) -> None:
        again = {
            row.lane_id
            for _, row, verdict in verdicts
            if verdict.state is RunState.QUEUED and not verdict.delay_seconds
        }
        unblocked = {row.lane_id for _, row, _ in verdicts if row.slots}
        for lane_id in again | unblocked:
            lane = self._lanes.get(lane_id) or store.lanes_by_id(tx, [lane_id])[lane_id]
            tx.after_commit(lambda queue=lane.queue: self._bell.add(queue))  # type: ignore[misc]


def _lost(rows: Sequence[Any], reason: str) -> list[Ending]:
    """Endings of runs that lost their worker together.

    One of them may have killed it. Those that were lost before come back one by one, so that it does not meet the
    same others again and the guilty one is found.
    """
    before = [row.id for row in rows if row.losses]
    later = {run_id: min(place * SECONDS_APART, MOST_APART) for place, run_id in enumerate(before)}
    return [
        Ending(row.id, row.attempt, Outcome.LOST.value, reason, retry_after_seconds=later.get(row.id)) for row in rows
    ]


def _judge(ending: Ending, rows: dict[int, Any], retry: Retry) -> Verdict:
    row, beside = rows[ending.run_id], -1
    if ending.outcome == Outcome.LOST.value:
        beside = max((other.losses for other in rows.values() if other is not row), default=-1)
    return judge(
        ending,
        retry=retry,
        tries=row.tries,
        losses=row.losses,
        cancel_requested=bool(row.cancel_requested),
        beside=beside,
    )


def _room(lane: Lane, free: dict[str, int], count: int) -> int:
    return max(0, min([count, *(free[key] for key in lane.limits if key in free)]))


def _kept(ending: Ending) -> Ending:
    if ending.outcome not in TOLD:
        raise Invalid("outcome", ending.outcome, f"it must be one of {', '.join(TOLD)}")
    return msgspec.structs.replace(ending, reason=storable(ending.reason)) if ending.reason else ending


def _run_row(ending: Ending, row: Any, verdict: Verdict, at: Moment) -> dict[str, Any]:
    again = verdict.state is RunState.QUEUED
    return {
        "id": row.id,
        "attempt": row.attempt,
        "cancel_requested": row.cancel_requested,
        "state": verdict.state.value,
        "tries": verdict.tries,
        "losses": verdict.losses,
        "ready_lane": row.lane_id if again and not verdict.delay_seconds else None,
        "not_before": at + seconds(verdict.delay_seconds) if again and verdict.delay_seconds else None,
        "lease_worker": None,
        "finished_at": None if again else at,
        "outcome": None if again else verdict.outcome.value,
        "reason": verdict.reason or None,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "result": msgspec.json.encode(ending.result).decode() if ending.result is not None else None,
        "log_key": None if again else ending.log_key,
        "log_bytes": None if again else ending.log_bytes,
        "live_task": row.task_id if again else None,
        "trouble": None if again or verdict.outcome is Outcome.SUCCEEDED else verdict.outcome.value,
        **({"slots": row.slots} if row.slots else {}),
    }


def _attempt_row(ending: Ending, row: Any, verdict: Verdict, at: Moment) -> dict[str, Any]:
    return {
        "run_id": row.id,
        "attempt": row.attempt,
        "worker": row.worker,
        "started_at": row.started_at,
        "finished_at": at,
        "outcome": verdict.outcome.value,
        "reason": ending.reason or None,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "log_key": ending.log_key,
        "log_bytes": ending.log_bytes,
    }


def _fact(row: Any, verdict: Verdict) -> Fact:
    if verdict.state in ENDED:
        data = {"state": verdict.state.value, "outcome": verdict.outcome.value, "reason": verdict.reason}
        return Fact("run_finished", row.project, row.id, row.task_id, data)
    kind = "run_released" if verdict.outcome is Outcome.RELEASED else "run_retried"
    data = {"attempt": row.attempt, "outcome": verdict.outcome.value, "reason": verdict.reason}
    return Fact(kind, row.project, row.id, row.task_id, data)
