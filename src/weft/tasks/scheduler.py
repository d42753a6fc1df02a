"""The scheduler: queues a run for each tick that is due and for each task whose forerunners have ended.

Any number may run. A tick is claimed by moving its schedule on, and kept under ``(task, fire time)``, which is unique:
the leader lease only saves the others the looking.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft import events
from weft.clock import SECOND, Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.errors import Conflict
from weft.events import Fact
from weft.runs import key_store
from weft.runs.model import NewRun, Trigger
from weft.runs.runs import Runs
from weft.tasks import misfire, store, successors
from weft.tasks.leader import Leader
from weft.tasks.schedule import jittered
from weft.tasks.store import Stored

log = logging.getLogger(__name__)

MOST_ROUNDS = 100
MOST_AT_ONCE = 500
"""How many schedules one transaction moves on."""


@dataclass(slots=True)
class Firing:
    """What one transaction of the scheduler is about to write."""

    ticks: list[tuple[dict[str, Any], NewRun | None]] = field(default_factory=list)
    """What is kept of each tick, and the run that comes of it."""
    moves: list[dict[str, Any]] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    cancel: list[int] = field(default_factory=list)

    def skip(self, project: str, tick: dict[str, Any], outcome: str = "skipped") -> None:
        data = {"fire_at": tick["fire_at"], "why": outcome}
        self.ticks.append((tick | {"outcome": outcome}, None))
        self.facts.append(Fact("tick_skipped", project, None, tick["task_id"], data))


class Scheduler:
    """Turns time and ended runs into queued runs."""

    def __init__(
        self, db: Database, runs: Runs, leader: Leader, clock: Clock, *, grace_seconds: float = misfire.GRACE_SECONDS
    ) -> None:
        self._db, self._runs, self._leader, self._clock = db, runs, leader, clock
        self._grace = grace_seconds
        self._next: Moment | None = None
        """When to look again, as the last tick saw it; None: after the usual time."""

    async def tick(self) -> int:
        """Queue everything that is due now, if this scheduler leads; return how much there was to do."""
        self._next = None
        if not await self._leader.leads():
            return 0
        now = self._clock()
        first, ended, waiting = await self._db.read(lambda tx: self._look(tx, now))
        done = 0
        if first is not None and first <= now:
            done += await _repeated(lambda: self._db.transact(self.fire_due))
        if ended:
            done += await _repeated(lambda: self._db.transact(lambda tx: successors.release(tx, self._runs)[0]))
        if waiting:
            done += await _repeated(self._runs.wake_waiting)
        if done:
            self._next = now  # the ticks that come next were not seen yet
        elif first is not None and first > now:
            self._next = first
        return done

    def _look(self, tx: Transaction, now: Moment) -> tuple[Moment | None, bool, bool]:
        """The next tick, whether ended runs may have successors, and whether waiting runs have waited long enough."""
        return store.first_due(tx), events.waits(tx, successors.READER), self._runs.has_waited(tx, now)

    async def resign(self) -> None:
        """Let another scheduler take over at once."""
        await self._leader.resign()

    async def seconds_to_next(self, at_most: float) -> float:
        """How long nothing will be due, as far as the last tick saw; one that found work looks again at once."""
        if self._next is None:
            return at_most
        return min(max((self._next - self._clock()) / SECOND, 0.0), at_most)

    def fire_due(self, tx: Transaction) -> int:
        """Fire some of the schedules that are due, whoever leads; return how many."""
        now = self._clock()
        due = store.due(tx, now, MOST_AT_ONCE)
        if not due:
            return 0
        tasks = store.by_ids(tx, due)
        firing = self._decide(tx, now, due, tasks)
        self._cancel_replaced(tx, firing)
        self._keep_ticks(tx, firing, now)
        events.append(tx, firing.facts, now)
        if store.advance(tx, firing.moves) != len(firing.moves):
            raise AssertionError("a locked schedule was moved by somebody else")
        return len(due)

    def _cancel_replaced(self, tx: Transaction, firing: Firing) -> None:
        for run_id in firing.cancel:
            try:
                self._runs.cancel_in(tx, run_id, "replaced by a newer run")
            except Conflict:
                pass  # it has just ended by itself

    def _keep_ticks(self, tx: Transaction, firing: Firing, now: Moment) -> None:
        """Queue the runs, and keep each tick with its run."""
        queued = [run for _, run in firing.ticks if run is not None]
        ids = iter(self._runs.queue(tx, queued))
        rows = [tick | {"run_id": next(ids) if run is not None else None} for tick, run in firing.ticks]
        store.add_ticks(tx, rows)
        for row, (_, run) in zip(rows, firing.ticks, strict=True):
            if run is not None and run.dedup_key:
                key_store.remember_target(tx, run.project, run.dedup_key, row["run_id"], now)

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
        for task_id, decided in decisions.items():
            new = [fire for fire in decided.fire if (task_id, fire) not in fired]
            _fire(tx, firing, tasks[task_id], new, now, live.get(task_id, []))
        return firing


async def _repeated(work: Callable[[], Awaitable[int]]) -> int:
    """Do ``work`` until there is none left, but not for ever: a schedule may fire faster than that."""
    done = 0
    for _ in range(MOST_ROUNDS):
        count = await work()
        done += count
        if not count:
            break
    return done


def _asks_for_overlap(stored: Stored) -> bool:
    return stored.task.schedule is not None and stored.task.schedule.overlap != "allow"


def _fire(
    tx: Transaction, firing: Firing, stored: Stored, fires: Sequence[Moment], now: Moment, live: list[tuple[int, str]]
) -> None:
    """Decide on the ticks of one task, oldest first: a run, or nothing while an earlier one is still live."""
    task, schedule = stored.task, stored.task.schedule
    if schedule is None:
        raise AssertionError("a task without a schedule has no ticks")
    if schedule.overlap == "replace" and fires:
        firing.cancel += [run_id for run_id, _ in live]
    states = [state for _, state in live]
    targets: set[str] = set()
    for fire in fires:
        tick = {"task_id": stored.id, "fire_at": fire, "run_id": None, "outcome": "queued", "at": now}
        later = jittered(task.full_name, fire, schedule.jitter_seconds) if schedule.jitter_seconds else fire
        run = task.new_run(stored.id, Trigger.SCHEDULE, fire_at=fire, not_before=later if later > now else None)
        if _overlaps(schedule.overlap, states) or (schedule.overlap == "replace" and fire != fires[-1]):
            firing.skip(task.project, tick)
        elif run.dedup_key and (run.dedup_key in targets or _is_duplicate(tx, run, now)):
            firing.skip(task.project, tick, "duplicate")
        else:
            firing.ticks.append((tick, run))
            states.append("queued")
            targets |= {run.dedup_key} if run.dedup_key else set()


def _overlaps(policy: str, states: Sequence[str]) -> bool:
    if policy == "skip":
        return bool(states)
    return policy == "queue_one" and "queued" in states


def _is_duplicate(tx: Transaction, run: NewRun, now: Moment) -> bool:
    """Whether the target of ``run`` is pending or was done within the task's window."""
    since = now - seconds(run.dedup_seconds)
    return key_store.live_duplicate(tx, run.project, run.dedup_key or "", since) is not None
