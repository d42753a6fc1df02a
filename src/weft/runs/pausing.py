"""Pausing runs and letting them go on: for those that can keep their place (a spider's JOBDIR).

A paused run is queued and waits for a moment that never comes. A running one is asked, as with a cancel, at its
worker's next heartbeat; the worker keeps its place and gives it back.
"""

from __future__ import annotations

from weft import events
from weft.access.witness import tell
from weft.clock import Clock
from weft.db.database import Database, Transaction
from weft.errors import Conflict, NotFound
from weft.events import Fact
from weft.runs import list_store, pause_store, store
from weft.runs.bell import Bell
from weft.runs.model import ENDED, Run, RunState


class Pauses:
    def __init__(self, db: Database, bell: Bell, clock: Clock) -> None:
        self._db, self._bell, self._clock = db, bell, clock

    async def pause(self, run_id: int) -> Run:
        """Hold a waiting run back, or ask the worker of a running one to stop it where it is."""
        return await self._db.transact(lambda tx: self._pause(tx, run_id))

    async def resume(self, run_id: int) -> Run:
        """Let a paused run go on; of one that was only asked to pause, take that back."""
        return await self._db.transact(lambda tx: self._resume(tx, run_id))

    def _pause(self, tx: Transaction, run_id: int) -> Run:
        run = _found(tx, run_id)
        if run.state in ENDED:
            raise Conflict(f"run {run_id} has already finished ({run.state})")
        if not (run.spec.spec.get("resumable") or run.spec.spec.get("frontier")):
            why = "only a spider whose spec says resumable, or has a frontier, keeps its place"
            raise Conflict(f"run {run_id} cannot be paused: {why}")
        pause_store.ask(tx, run_id)
        if run.state is RunState.QUEUED:
            pause_store.hold(tx, run_id)
            self._append(tx, "run_paused", run)
        else:
            self._append(tx, "run_pause_requested", run)
        tell(tx)
        return _found(tx, run_id)

    def _resume(self, tx: Transaction, run_id: int) -> Run:
        run = _found(tx, run_id)
        if not pause_store.take_back(tx, run_id):
            raise Conflict(f"run {run_id} is not paused ({run.state})")
        if pause_store.let_go(tx, run_id):
            self._append(tx, "run_resumed", run)
            lane_id = pause_store.lane_of(tx, run_id)
            queue = store.lanes_by_id(tx, [lane_id])[lane_id].queue
            tx.after_commit(lambda: self._bell.add_all({queue: 1}))
        tell(tx)
        return _found(tx, run_id)

    def _append(self, tx: Transaction, kind: str, run: Run) -> None:
        events.append(tx, [Fact(kind, run.project, run.id, run.task_id)], self._clock())


def _found(tx: Transaction, run_id: int) -> Run:
    run = list_store.get(tx, run_id, lock=True)
    if run is None:
        raise NotFound("run", run_id)
    return run
