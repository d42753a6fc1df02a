"""Why queued runs wait, in one sentence each; beside it, how active projects are and how far runs have come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.clock import Clock, Moment, iso, seconds
from weft.db.database import Database, Transaction
from weft.runs import store as run_store
from weft.runs.lanes import Lane
from weft.runs.model import RunState
from weft.spiders.notable_events import NotableEvents
from weft.spiders.timeline import Throughput
from weft.workers import store as worker_store

TAKES = ("online", "busy")
"""States of workers that take work."""
SOON = seconds(1)


@dataclass(frozen=True, slots=True)
class WorkerSlots:
    """What matters of a worker here."""

    labels: frozenset[str]
    free: int
    takes: bool
    problem: str


class WaitReasons:
    """Looks at what stands between a run and its start: its time, limits, labels, workers."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def of(self, run_ids: Sequence[int]) -> dict[int, str]:
        """Why each of these runs waits that does."""
        return await self._db.read(lambda tx: self._of(tx, run_ids)) if run_ids else {}

    def _of(self, tx: Transaction, run_ids: Sequence[int]) -> dict[int, str]:
        waiting = worker_store.waiting_runs(tx, run_ids)
        lane_ids = {row.ready_lane for row in waiting if row.ready_lane is not None}
        lanes = run_store.lanes_by_id(tx, lane_ids) if lane_ids else {}
        places = (
            worker_store.slots_of_limits(tx, {key for lane in lanes.values() for key in lane.limits}) if lanes else {}
        )
        workers = _worker_slots(tx, self._clock()) if lanes else []
        return {row.id: self._why(row, lanes.get(row.ready_lane), places, workers) for row in waiting}

    def _why(
        self, row: Any, lane: Lane | None, places: Mapping[str, tuple[int, int]], workers: Sequence[WorkerSlots]
    ) -> str:
        if lane is None:
            return _later(row, self._clock())
        return (
            _nobody(lane, workers)
            or _capped(lane, places, row.task)
            or _full(lane, workers)
            or "a worker takes it in a moment"
        )


def _later(row: Any, now: Moment) -> str:
    """Why a run is not ready yet."""
    if row.state == RunState.PAUSED:
        return "paused: it waits until somebody resumes it"
    if row.not_before is None:
        return "it is being queued"
    if row.not_before <= now + SOON:
        return "it is ready in a moment"
    at = _clock_time(row.not_before, now)
    return f"retried at {at}, attempt {row.attempt + 1}" if row.attempt else f"not before {at}"


def _nobody(lane: Lane, workers: Sequence[WorkerSlots]) -> str:
    """What no worker has that the runs of a lane ask for."""
    able = [worker for worker in workers if lane.may_be_served_by(worker.labels)]
    if any(worker.takes for worker in able):
        return ""
    if problem := next((worker.problem for worker in able if worker.problem), ""):
        return f"the workers that could take it are unhealthy: {problem}"
    if able:
        return "the workers that could take it are draining"
    if not workers:
        return "no worker is there"
    missing = [label for label in lane.labels if not any(label in worker.labels for worker in workers)] or lane.labels
    return f"no worker has the label {missing[0]}" if len(missing) == 1 else f"no worker has the labels {_all(missing)}"


def _capped(lane: Lane, places: Mapping[str, tuple[int, int]], task: str) -> str:
    """The first limit of a lane that is reached."""
    for key in lane.limits:
        most, taken = places.get(key, (1, 0))
        if taken >= most:
            kind, _, name = key.partition(":")
            name = task if kind == "task" else name.removeprefix(f"{lane.project}:") if kind == "tag" else name
            return f"cap of {kind} {name}: {taken} of {most} running"
    return ""


def _full(lane: Lane, workers: Sequence[WorkerSlots]) -> str:
    able = [worker for worker in workers if worker.takes and lane.may_be_served_by(worker.labels)]
    if any(worker.free > 0 for worker in able):
        return ""
    return "its worker is busy" if len(able) == 1 else f"all {len(able)} workers that could take it are busy"


def _worker_slots(tx: Transaction, now: Moment) -> list[WorkerSlots]:
    return [
        WorkerSlots(
            frozenset(msgspec.json.decode(row.labels)), row.capacity - row.running, row.state in TAKES, _problem_of(row)
        )
        for row in worker_store.all_workers(tx, offline_since=now)
        if row.state != worker_store.GONE
    ]


def _problem_of(row: Any) -> str:
    """Why a worker takes nothing, as it says itself."""
    if row.state != "unhealthy":
        return ""
    return str(msgspec.json.decode(row.stats).get("problem", ""))[:200] or "it does not say why"


def _clock_time(at: Moment, now: Moment) -> str:
    """A moment as briefly as it is clear."""
    text, today = iso(at) or "", iso(now) or ""
    return f"{text[11:19]} UTC" if text[:10] == today[:10] else f"{text[:10]} {text[11:16]} UTC"


def _all(names: Collection[str]) -> str:
    return " and ".join(names)


class Insights:
    def __init__(self, db: Database, clock: Clock) -> None:
        self.activity, self.pace, self.reasons = NotableEvents(db, clock), Throughput(db), WaitReasons(db, clock)
