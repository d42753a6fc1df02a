"""The scheduler: queues a run for each tick that is due and for each task whose forerunners have ended.

Any number may run. A tick is claimed by moving its schedule on, and kept under ``(task, fire time)``, which is unique:
the leader lease only saves the others the looking.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft import events
from weft.clock import SECOND, Clock, Moment
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.runs.model import NewRun, Trigger
from weft.runs.runs import Runs
from weft.tasks import misfire, store, successors
from weft.tasks.leader import Leader
from weft.tasks.schedule import jittered
from weft.tasks.store import Stored

log = logging.getLogger(__name__)

MOST_AT_ONCE = 500
"""How many schedules one transaction moves on."""


@dataclass(slots=True)
class Firing:
    """What one transaction of the scheduler is about to write."""

    runs: list[NewRun] = field(default_factory=list)
    ticks: list[dict[str, Any]] = field(default_factory=list)
    moves: list[dict[str, Any]] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    cancel: list[int] = field(default_factory=list)


class Scheduler:
    """Turns time and ended runs into queued runs."""

    def __init__(
        self, db: Database, runs: Runs, leader: Leader, clock: Clock, *, grace_seconds: float = misfire.GRACE_SECONDS
    ) -> None:
        self._db, self._runs, self._leader, self._clock = db, runs, leader, clock
        self._grace = grace_seconds

    async def tick(self) -> int:
        """Queue everything that is due now, if this scheduler leads; return how much there was to do."""
        if not await self._leader.leads():
            return 0
        done = 0
        while moved := await self._db.transact(self.fire_due):
            done += moved
        while taken := (await self._db.transact(lambda tx: successors.release(tx, self._runs)))[0]:
            done += taken
        return done + await self._runs.wake_waiting()

    async def resign(self) -> None:
        """Let another scheduler take over at once."""
        await self._leader.resign()

    async def seconds_to_next(self, at_most: float) -> float:
        """How long nothing will be due, as far as is known."""
        first = await self._db.read(store.first_due)
        if first is None:
            return at_most
        return min(max((first - self._clock()) / SECOND, 0.0), at_most)

    def fire_due(self, tx: Transaction) -> int:
        """Fire some of the schedules that are due, whoever leads; return how many."""
        now = self._clock()
        due = store.due(tx, now, MOST_AT_ONCE)
        if not due:
            return 0
        tasks = store.by_ids(tx, due)
        firing = self._decide(tx, now, due, tasks)
        ids = self._runs.queue(tx, firing.runs)
        waiting = iter(ids)
        store.add_ticks(tx, [tick | {"run_id": next(waiting) if tick["run_id"] else None} for tick in firing.ticks])
        for run_id in firing.cancel:
            self._runs.cancel_in(tx, run_id, "replaced by a newer run")
        events.append(tx, firing.facts, now)
        if store.advance(tx, firing.moves) != len(firing.moves):
            raise AssertionError("a locked schedule was moved by somebody else")
        return len(due)

    def _decide(
        self, tx: Transaction, now: Moment, due: Mapping[int, tuple[Moment, int]], tasks: Mapping[int, Stored]
    ) -> Firing:
        firing = Firing()
        decisions = {}
        for task_id, (stored_fire, missed) in due.items():
            stored = tasks.get(task_id)
            if stored is None or stored.task.schedule is None or stored.task.paused:
                firing.moves.append({"task_id": task_id, "fire": stored_fire, "next": None, "missed": missed})
                continue
            decided = misfire.due(stored.task.schedule, stored_fire, now, self._grace)
            decisions[task_id] = decided
            firing.moves.append(
                {"task_id": task_id, "fire": stored_fire, "next": decided.next, "missed": missed + decided.missed}
            )
            if decided.missed:
                data = {"count": decided.missed, "first": decided.missed_first, "last": decided.missed_last}
                firing.facts.append(Fact("ticks_missed", stored.task.project, None, task_id, data))
        wanted = [(task_id, fire) for task_id, decided in decisions.items() for fire in decided.fire]
        fired = store.known_ticks(tx, wanted)
        live = self._runs.live_of(tx, [task_id for task_id in decisions if _asks_for_overlap(tasks[task_id])])
        for task_id, fire in wanted:
            if (task_id, fire) not in fired:
                _fire(firing, tasks[task_id], fire, now, live.setdefault(task_id, []))
        return firing


def _asks_for_overlap(stored: Stored) -> bool:
    return stored.task.schedule is not None and stored.task.schedule.overlap != "allow"


def _fire(firing: Firing, stored: Stored, fire: Moment, now: Moment, live: list[tuple[int, str]]) -> None:
    """Decide on one tick: a run, or nothing while an earlier one is still live."""
    task = stored.task
    if task.schedule is None:
        raise AssertionError("a task without a schedule has no ticks")
    tick = {"task_id": stored.id, "fire_at": fire, "run_id": None, "outcome": "queued", "at": now}
    if _overlaps(task.schedule.overlap, live):
        firing.ticks.append(tick | {"outcome": "skipped"})
        firing.facts.append(Fact("tick_skipped", task.project, None, stored.id, {"fire_at": fire}))
        return
    if task.schedule.overlap == "replace":
        firing.cancel += [run_id for run_id, _ in live if run_id]
        live.clear()
    jitter = task.schedule.jitter_seconds
    later = jittered(task.full_name, fire, jitter) if jitter else fire
    firing.runs.append(
        task.new_run(stored.id, Trigger.SCHEDULE, fire_at=fire, not_before=later if later > now else None)
    )
    firing.ticks.append(tick | {"run_id": True})
    live.append((0, "queued"))


def _overlaps(policy: str, live: Sequence[tuple[int, str]]) -> bool:
    if policy == "skip":
        return bool(live)
    if policy == "queue_one":
        return any(state == "queued" for _, state in live)
    return False
