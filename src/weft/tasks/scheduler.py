"""The scheduler: queues a run for each tick that is due and for each task whose upstream tasks have ended.

Any number may run. A tick is claimed by moving its schedule on, and kept under ``(task, fire time)``, which is unique:
the leader lease only saves work. One transaction takes the event of an ended run and queues its downstream tasks, so
no edge of the graph is lost or walked twice.

Misfires (R16, R17): late by less than the grace is not a misfire, such ticks all fire. Of the later ones the policy
chooses: none, or all that catch-up allows, or the latest one, unless a tick on time does its work. In every case the
ticks that fire are the newest of those due, at most ``catch_up_cap`` of them, and all the others are counted as
missed.

When the clock of the machine was set back, the end of a wait may lie years ahead, though a few seconds were meant; so
the leader moves the ends of all waits back by as much. A clock that was set forward ends waits early, which harms
nothing. Leases of workers do not depend on clocks at all (``workers/reaper.py``).

A fire time is never fired twice. Where the clock shows a time of an interval again, that goes on by elapsed time, under
moments that are free; unless its last tick is less than half an interval ago, as after a small correction: then the
next time is waited for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from weft import events
from weft.clock import SECOND, Clock, Moment, iso, seconds
from weft.db.database import Database, Transaction
from weft.errors import Conflict
from weft.events import Event, Fact
from weft.runs import store as run_store
from weft.runs.model import UNLEASED, NewRun, Trigger
from weft.runs.runs import Runs
from weft.tasks import leader_store, store
from weft.tasks.leader import Leader
from weft.tasks.model import UpstreamTask
from weft.tasks.schedule import Schedule, Ticks, as_of, jittered, next_fire, ticks_of
from weft.tasks.store import StoredTask

GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTicks:
    """The ticks to fire now, oldest first, what was missed before them, and the next tick to wait for."""

    fire: tuple[Moment, ...] = ()
    missed: int = 0
    missed_first: Moment | None = None
    missed_last: Moment | None = None
    next: Moment | None = None


def due_ticks(schedule: Schedule, stored: Moment, now: Moment, grace_seconds: float = GRACE_SECONDS) -> DueTicks:
    """Decide on every tick from ``stored``, the one that is waited for, up to and including ``now``.

    A clock that was set back finds ``stored`` in the future and waits; nothing fires a second time.
    """
    if now < stored:
        return DueTicks(next=stored)
    all_ticks = ticks_of(schedule)
    fire = _firing_ticks(schedule, all_ticks, stored, now, now - seconds(grace_seconds))
    before = (fire[0] if fire else now + 1) - 1
    missed = all_ticks.count(stored, before + 1)
    return DueTicks(
        fire=fire,
        missed=missed,
        missed_first=next(all_ticks.onward(stored)) if missed else None,
        missed_last=next(all_ticks.backward(before)) if missed else None,
        next=next_fire(schedule, now),
    )


def _firing_ticks(
    schedule: Schedule, all_ticks: Ticks, stored: Moment, now: Moment, late: Moment
) -> tuple[Moment, ...]:
    """``late`` is the newest moment at which a tick counts as late."""
    oldest = now - seconds(schedule.catch_up_seconds)
    if schedule.misfire == "all":
        return _newest_ticks(all_ticks, max(stored, min(oldest, late + 1)), now, schedule.catch_up_cap)
    on_time = _newest_ticks(all_ticks, max(stored, late + 1), now, schedule.catch_up_cap)
    if schedule.misfire == "once" and not on_time:
        return _newest_ticks(all_ticks, max(stored, oldest), now, 1)
    return on_time


def _newest_ticks(all_ticks: Ticks, start: Moment, end: Moment, limit: int) -> tuple[Moment, ...]:
    newest = islice(takewhile(lambda tick: tick >= start, all_ticks.backward(end)), limit)
    return tuple(newest)[::-1]


log = logging.getLogger(__name__)

NOTE_INTERVAL: Moment = 10 * SECOND
"""How often the time is kept, so that a step is noticed that comes while no process runs."""
MOST_SKEW: Moment = 60 * SECOND
"""How far the clocks of two machines may differ without that being a step."""
SHORTEST_STEP: Moment = SECOND // 4
IN_PROGRESS: Moment = 10 * SECOND
"""What was due for less than that before the step may not have been looked at yet."""

WaitCorrection = Callable[[Transaction, Moment, Moment], None]
"""Ends waits that were to end after a moment (what the clock showed last) by so much earlier."""


class ClockStepDetector:
    """Notices that the clock was set back, and mends what waits."""

    def __init__(
        self,
        db: Database,
        clock: Clock,
        turn_back: Callable[[Transaction, Moment], int],
        mend: Sequence[WaitCorrection],
    ) -> None:
        """``turn_back`` moves schedules to the first tick from now on, and is told what the clock showed before."""
        self._db, self._clock, self._turn_back, self._mend = db, clock, turn_back, mend
        self._last: Moment = 0
        self._noted: Moment | None = None
        """When this process has last kept the time; None where another one has led meanwhile."""
        self.back_at: Moment = 0
        """What the clock showed before it was set back; until then time goes by a second time."""

    async def notice(self, *, leads: bool) -> None:
        """Compare the clock with what it showed before; only who leads mends."""
        now, last = self._clock(), self._last
        self._last = now
        if last - now > SHORTEST_STEP:
            self.back_at = max(self.back_at, last)
            if leads:
                await self._db.transact(lambda tx: self._set_back(tx, last, now))
            self._noted = now if leads else None
        elif not leads:
            self._noted = None
        elif self._noted is None or now - self._noted >= NOTE_INTERVAL:
            await self._db.transact(lambda tx: self._note(tx, now))
            self._noted = now

    async def leave(self) -> None:
        """Keep what the clock showed last, if this process led, so that the next one knows of any step after that."""
        if self._noted is not None:
            shown = max(self._last, self._clock())
            await self._db.transact(lambda tx: leader_store.note_time(tx, shown))

    def _note(self, tx: Transaction, now: Moment) -> None:
        before = leader_store.noted_time(tx)
        if before is not None and before - now > MOST_SKEW:
            self.back_at = before
            self._set_back(tx, before, now)
            return
        if before is None:  # an earlier version kept no time, and may have left schedules that wait for years
            self._turn_back(tx, now)
        elif now - before < NOTE_INTERVAL and self._turn_back(tx, before):
            # Another process has led, or one that has ended. A step that is hidden here was shorter than it was away.
            self.back_at = max(self.back_at, before + NOTE_INTERVAL)
        if before is None or before < now:
            leader_store.note_time(tx, now)

    def _set_back(self, tx: Transaction, before: Moment, now: Moment) -> None:
        noted = leader_store.noted_time(tx, lock=True)
        if before - now > MOST_SKEW and noted is not None and noted <= now:
            return  # another leader has done it
        self._turn_back(tx, before)
        for mend in self._mend:
            mend(tx, before - IN_PROGRESS, before - now)
        leader_store.note_time(tx, now)
        log.warning("the clock was set back", extra={"seconds": (before - now) / SECOND, "showed": iso(before)})


DOWNSTREAM_READER = "scheduler"


def queue_downstream(tx: Transaction, runs: Runs, limit: int = 200) -> tuple[int, int]:
    """Act on ended runs; return how many events were taken and how many runs were queued."""
    taken = events.take(tx, DOWNSTREAM_READER, limit)
    if not taken:
        return 0, 0
    ready = _ready_runs(tx, taken)
    runs.queue(tx, ready)
    return len(taken), len(ready)


def _ready_runs(tx: Transaction, ended: Sequence[Event]) -> list[NewRun]:
    edges = store.downstream_edges(tx, {event.task_id for event in ended if event.task_id is not None})
    if not edges:
        return []
    # Two schedulers may each bring the last upstream task but one: the lock on the successor lets one see the other's.
    following = store.by_ids(tx, {edge.task_id for edge in edges}, lock=True)
    wanted = store.upstream_edges(tx, set(following))
    flows = store.flows_of_runs(tx, [event.run_id for event in ended if event.run_id is not None])
    queued: list[NewRun] = []
    for event in ended:
        for edge in edges:
            if edge.upstream_id == event.task_id and edge.task_id in following:
                run = _record_end(tx, event, edge, following[edge.task_id], wanted[edge.task_id], flows)
                queued += [run] if run is not None else []
    return queued


def _record_end(
    tx: Transaction,
    event: Event,
    edge: Any,
    stored: store.StoredTask,
    wanted: list[int],
    flows: dict[int, tuple[str, str]],
) -> NewRun | None:
    """Note one upstream task's end; the run that follows once all are there."""
    if stored.task.paused or event.run_id is None or event.run_id not in flows:
        return None
    correlation, trace = flows[event.run_id]
    met = UpstreamTask(task="", on=edge.on).met_by(event.data.get("state", ""), event.data.get("outcome", ""))
    arrived = {edge.upstream_id: met}
    if len(wanted) > 1:
        flow = correlation if edge.by_flow else ""
        store.record_arrival(tx, stored.id, flow, edge.upstream_id, event.run_id, met)
        arrived = store.arrivals_of(tx, stored.id, flow)
        if not arrived.keys() >= set(wanted):
            return None
        store.forget_arrivals(tx, stored.id, flow)
    return stored.task.new_run(
        stored.id,
        Trigger.DEPENDENCY,
        correlation_id=correlation,
        traceparent=next_span(trace),
        skipped=None if all(arrived.values()) else "an upstream task did not end as asked for",
    )


def next_span(traceparent: str) -> str:
    """The same trace, one step on."""
    version, trace, _, flags = traceparent.split("-")
    return f"{version}-{trace}-{os.urandom(8).hex()}-{flags}"


MOST_ROUNDS = 100
MOST_AT_ONCE = 500
"""How many schedules one transaction moves on."""


@dataclass(slots=True)
class FiringBatch:
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
        self,
        db: Database,
        runs: Runs,
        leader: Leader,
        clock: Clock,
        *,
        grace_seconds: float = GRACE_SECONDS,
        mend: Sequence[WaitCorrection] = (),
    ) -> None:
        self._db, self._runs, self._leader, self._clock = db, runs, leader, clock
        self._grace = grace_seconds
        self._steps = ClockStepDetector(db, clock, self._turn_back, mend)
        self._next: Moment | None = None
        """When to look again, as the last tick saw it; None: after the usual time."""

    async def tick(self) -> int:
        """Queue everything that is due now, if this scheduler leads; return how much there was to do."""
        self._next = None
        leads = await self._leader.leads()
        await self._steps.notice(leads=leads)
        if not leads:
            return 0
        now = self._clock()
        first, ended, waiting = await self._db.read(lambda tx: self._look(tx, now))
        done = 0
        if first is not None and first <= now:
            done += await _repeat(lambda: self._db.transact(self.fire_due))
        if ended:
            done += await _repeat(lambda: self._db.transact(lambda tx: queue_downstream(tx, self._runs)[0]))
        if waiting:
            done += await _repeat(self._runs.wake_waiting)
        if done:
            self._next = now  # the ticks that come next were not seen yet
        elif first is not None and first > now:
            self._next = first
        return done

    def _look(self, tx: Transaction, now: Moment) -> tuple[Moment | None, bool, bool]:
        """The next tick, whether ended runs may have successors, and whether waiting runs have waited long enough."""
        return store.first_due(tx), events.waits(tx, DOWNSTREAM_READER), self._runs.has_waited(tx, now)

    def _turn_back(self, tx: Transaction, before: Moment) -> int:
        """Let every schedule wait for its first tick from now on, after the clock was set back from ``before``; return
        how many wait for an earlier one than they did."""
        now = self._clock()
        after = moved = 0
        while page := store.next_fires_after(tx, after, MOST_AT_ONCE):
            tasks = store.by_ids(tx, page)
            moves = [
                (stored.id, _first_tick(stored, now, page[stored.id] - before))
                for stored in tasks.values()
                if not stored.task.paused
            ]
            earlier = [
                {"task_id": task_id, "next_fire_at": fire}
                for task_id, fire in moves
                if fire is not None and fire < page[task_id]
            ]
            store.set_next(tx, earlier)
            moved += len(earlier)
            after = max(page)
        return moved

    async def resign(self) -> None:
        """Let another scheduler take over at once."""
        await self._steps.leave()
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

    def _cancel_replaced(self, tx: Transaction, firing: FiringBatch) -> None:
        for run_id in firing.cancel:
            try:
                self._runs.cancel_in(tx, run_id, "replaced by a newer run")
            except Conflict:
                pass  # it has just ended by itself

    def _keep_ticks(self, tx: Transaction, firing: FiringBatch, now: Moment) -> None:
        """Queue the runs, and keep each tick with its run."""
        queued = [run for _, run in firing.ticks if run is not None]
        ids = iter(self._runs.queue(tx, queued))
        rows = [tick | {"run_id": next(ids) if run is not None else None} for tick, run in firing.ticks]
        store.add_ticks(tx, rows)
        for row, (_, run) in zip(rows, firing.ticks, strict=True):
            if run is not None and run.dedup_key:
                run_store.remember_duplicate_key(tx, run.project, run.dedup_key, row["run_id"], now)

    def _decide(
        self, tx: Transaction, now: Moment, due: Mapping[int, tuple[Moment, int]], tasks: Mapping[int, StoredTask]
    ) -> FiringBatch:
        firing = FiringBatch()
        decisions = {}
        for task_id, (stored_fire, missed) in due.items():
            stored = tasks.get(task_id)
            if stored is None or stored.task.schedule is None or stored.task.paused:
                firing.moves.append({"task_id": task_id, "fire": stored_fire, "next": None, "missed": missed})
                continue
            schedule = as_of(stored.task.schedule, stored.updated_at, now)
            decided = due_ticks(schedule, stored_fire, now, self._grace)
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
        relived = self._relived(tx, now, fired, tasks)
        for task_id, decided in decisions.items():
            new = [fire for fire in decided.fire if (task_id, fire) not in fired]
            if task_id in relived and not new:
                new = [store.free_moment(tx, task_id, now)]
            _fire(tx, firing, tasks[task_id], new, now, live.get(task_id, []))
        return firing

    def _relived(
        self, tx: Transaction, now: Moment, fired: Collection[tuple[int, Moment]], tasks: Mapping[int, StoredTask]
    ) -> Collection[int]:
        """Those of some tasks with ticks that have fired before which go on, because intervals follow elapsed time and
        the clock was set back. What they fire is known by the present moment: that of the tick is taken."""
        every = {id_ for id_, _ in fired if (schedule := tasks[id_].task.schedule) and schedule.kind == "every"}
        relived = {id_ for id_, fire in fired if id_ in every and fire <= self._steps.back_at}
        asked = sorted(every - relived)
        return relived | set(store.with_ticks_after(tx, asked, now)) if asked else relived


def _first_tick(stored: StoredTask, now: Moment, remaining: Moment) -> Moment | None:
    """The tick to wait for after ``now``, where the next one was ``remaining`` away before the clock was set back.

    An interval that was to begin when it was set, by a clock that was ahead, has begun: the ticks before its first one
    are counted backwards. It is not shortened to less than half.
    """
    schedule = stored.task.schedule
    if schedule is None:
        return None
    fire = next_fire(as_of(schedule, stored.updated_at, now), now)
    if fire is None or schedule.every_seconds is None:
        return fire
    period = seconds(schedule.every_seconds)
    since_last = period - min(max(remaining, 0), period)
    return fire if 2 * (since_last + fire - now) >= period else fire + period


async def _repeat(work: Callable[[], Awaitable[int]]) -> int:
    """Do ``work`` until there is none left, but not for ever: a schedule may fire faster than that."""
    done = 0
    for _ in range(MOST_ROUNDS):
        count = await work()
        done += count
        if not count:
            break
    return done


def _asks_for_overlap(stored: StoredTask) -> bool:
    return stored.task.schedule is not None and stored.task.schedule.overlap != "allow"


def _fire(
    tx: Transaction,
    firing: FiringBatch,
    stored: StoredTask,
    fires: Sequence[Moment],
    now: Moment,
    live: list[tuple[int, str]],
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
    return policy == "queue_one" and not set(states).isdisjoint(UNLEASED)


def _is_duplicate(tx: Transaction, run: NewRun, now: Moment) -> bool:
    """Whether the target of ``run`` is pending or was done within the task's window."""
    since = now - seconds(run.dedup_seconds)
    return run_store.live_duplicate(tx, run.project, run.dedup_key or "", since) is not None
