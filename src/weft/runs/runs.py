"""The front door to runs: submit, read, pause, cancel, retry."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from weft import events
from weft.access.audit import record_change
from weft.clock import Clock, Moment, seconds
from weft.counters import store as counters
from weft.db.batching import Batched
from weft.db.database import Database, Transaction
from weft.errors import Conflict, NotFound, QueueFull
from weft.events import Fact
from weft.logs.records import LogRecord
from weft.logs.search import LogQuery, search
from weft.logs.storage import StoredLog, damage_record, live_log, log_in_memory, open_log
from weft.ports import Blobs
from weft.runs import lease_store, list_store, metrics, store
from weft.runs.lanes import Lane, lane_of, task_limit
from weft.runs.model import (
    ENDED,
    Attempt,
    FoundRuns,
    NewRun,
    Run,
    RunListing,
    RunOutcome,
    RunState,
    Submitted,
    Trigger,
    storable,
)
from weft.runs.submission import (
    SAME_TARGET,
    BatchDuplicate,
    CodePins,
    SubmitResolution,
    earlier,
    key_row,
    queued_fact,
    resolved,
    same_request,
    under_conditions,
)
from weft.runs.wakeups import Wakeups

RECOUNT_SECONDS = 1.0
"""How old the count of a project's waiting runs may be when a submit is checked against its bound."""


class Runs:
    """Every run there is."""

    def __init__(self, db: Database, blobs: Blobs, wakeups: Wakeups, clock: Clock, *, min_isolation: str = "") -> None:
        """``min_isolation`` is the least isolation of every project, which may demand more for itself."""
        self._db, self._blobs, self._wakeups, self._clock = db, blobs, wakeups, clock
        self._submit_together = Batched(db, self.admit_all, len)
        self._pins = CodePins(min_isolation)
        self._lane_ids: dict[Lane, int] = {}
        self._waiting: dict[str, tuple[float, int, int | None]] = {}

    async def submit(self, new: Sequence[NewRun]) -> list[Submitted]:
        """Queue runs, all or none; return once they are durable.

        A run whose idempotency key was used before, or whose dedup key names a run that is pending or just done, is
        answered with that earlier run. What several callers submit at the same time is one transaction.
        """
        return await self._submit_together(new)

    def admit_all(self, tx: Transaction, submits: Sequence[Sequence[NewRun]]) -> list[list[Submitted]]:
        """Queue the runs of several submits in the caller's transaction."""
        answers = iter(self.admit(tx, [run for new in submits for run in new]))
        return [list(islice(answers, len(new))) for new in submits]

    def admit(self, tx: Transaction, new: Sequence[NewRun]) -> list[Submitted]:
        """Queue runs in the caller's transaction, as ``submit`` does."""
        answers: list[SubmitResolution] = self._known(tx, new)
        fresh = [position for position, answer in enumerate(answers) if answer is None]
        self._check_bounds(tx, [new[position] for position in fresh])
        pinned = self._pins.checked(tx, [new[position] for position in fresh])
        ids = self._queue(tx, pinned)
        for position, run_id in zip(fresh, ids, strict=True):
            answers[position] = Submitted(run_id)
        self._remember(tx, [(new[position], run_id) for position, run_id in zip(fresh, ids, strict=True)])
        return [resolved(answer, answers) for answer in answers]

    def queue(self, tx: Transaction, new: Sequence[NewRun]) -> Sequence[int]:
        """Queue runs in the caller's transaction without asking questions; workers hear of it once that commits."""
        return self._queue(tx, self._pins.pinned(tx, new)) if new else []

    def _queue(self, tx: Transaction, new: Sequence[NewRun]) -> Sequence[int]:
        """The same for runs that are pinned."""
        if not new:
            return []
        new, at = under_conditions(tx, new), self._clock()
        lanes = [lane_of(run) for run in new]
        by_lane = {lane: self._lane_id(tx, lane) for lane in set(lanes)}
        ids = store.add(tx, new, [by_lane[lane] for lane in lanes], at)
        events.append(tx, [queued_fact(run, run_id) for run, run_id in zip(new, ids, strict=True)], at)
        skipped = [run.project for run in new if run.skipped is not None]
        counters.add(tx, [metrics.ended_count(each, RunState.CANCELLED, RunOutcome.SKIPPED) for each in skipped], at)
        ready = Counter(lane.queue for run, lane in zip(new, lanes, strict=True) if run.not_before is None)
        tx.after_commit(lambda: self._wakeups.add_all(ready))
        return ids

    async def get(self, run_id: int) -> Run:
        found = await self._db.glance(lambda tx: list_store.get(tx, run_id))
        if found is None:
            raise NotFound("run", run_id)
        return found

    async def projects_of(self, run_ids: Collection[int]) -> dict[int, str]:
        """The project of each run that there is."""
        return await self._db.glance(lambda tx: store.projects_of(tx, run_ids))

    async def find(
        self,
        where: Mapping[str, Any],
        *,
        projects: Collection[str] | None = None,
        before: int | None = None,
        limit: int = 50,
        oldest_first: bool = False,
    ) -> list[Run]:
        """The runs of a ``Listing`` of these, as many as are wanted."""
        within = None if projects is None else frozenset(projects)
        found: list[Run] = []
        while len(found) < limit:
            wanted = limit - len(found)
            listing = RunListing(where=where, projects=within, before=before, limit=wanted, oldest_first=oldest_first)
            ids, _, rows, before = await self.page(listing)
            found += [list_store.run_of(rows[run_id]) for run_id in ids]
            if before is None:
                break
        return found

    async def page(self, wanted: RunListing, known: Mapping[int, bytes] | None = None) -> FoundRuns:
        """The runs of a listing: their rows, but for those that are ``known``."""

        def work(tx: Transaction) -> FoundRuns:
            ids, next_ = list_store.page(tx, wanted)
            kept = {id_: document for id_ in ids if (document := (known or {}).get(id_)) is not None}
            return FoundRuns(ids, kept, list_store.rows(tx, [id_ for id_ in ids if id_ not in kept]), next_)

        return await (self._db.glance(work) if wanted.is_short else self._db.read(work))

    async def attempts(self, run_id: int) -> list[Attempt]:
        return await self._db.read(lambda tx: store.attempts_of(tx, run_id))

    async def counts(self, projects: Collection[str] | None = None) -> dict[str, int]:
        """How many runs are ready, waiting and running now, in all projects or in some."""
        return await self._db.read(lambda tx: store.count_live(tx, projects))

    async def held(self, projects: Collection[str] | None = None) -> int:
        """How many of the ready runs a limit of runs at once holds back."""
        return await self._db.read(lambda tx: store.count_held(tx, projects))

    async def ended(self, *, within_seconds: float, projects: Collection[str] | None = None) -> dict[str, int]:
        """How many runs ended not longer ago, by outcome; a busy system counts only the newest."""
        since = self._clock() - seconds(within_seconds)
        return await self._db.read(lambda tx: store.count_ended(tx, since, projects))

    async def again(self, run_id: int) -> Submitted:
        """Queue a new run with the spec of an ended one, as it was then."""

        def work(tx: Transaction) -> Submitted:
            queued = self._again(tx, run_id)
            record_change(tx)
            return queued

        return await self._db.transact(work)

    async def again_many(self, run_ids: Sequence[int]) -> dict[int, Submitted | None]:
        """A new run for each that has ended, all or none; None for one that has not."""

        def work(tx: Transaction) -> dict[int, Submitted | None]:
            ended = store.states(tx, run_ids)
            new = {id_: self._again(tx, id_) if ended.get(id_, RunState.FAILED) in ENDED else None for id_ in run_ids}
            record_change(tx)
            return new

        return await self._db.transact(work)

    def _again(self, tx: Transaction, run_id: int) -> Submitted:
        old = list_store.get(tx, run_id)
        if old is None:
            raise NotFound("run", run_id)
        if old.finished_at is None:
            raise Conflict(f"run {run_id} has not ended yet ({old.state}); cancel it first")
        copied = {name: getattr(old, name) for name in ("project", "task", "task_id", "kind", "priority")}
        copied["spec"] = replace(old.spec, code=None)  # what is current now, unless the spec names a version
        limit = None if old.task_id is None else store.limit_of(tx, task_limit(old.task_id))
        return self.admit(tx, [NewRun(**copied, trigger=Trigger.RETRY, max_running=limit)])[0]

    async def cancel(self, run_id: int, reason: str = "cancelled by a person") -> Run:
        """Cancel a waiting run at once, or ask the worker of a running one to stop it."""

        def work(tx: Transaction) -> None:
            self.cancel_in(tx, run_id, reason)
            record_change(tx)

        await self._db.transact(work)
        return await self.get(run_id)

    async def cancel_many(self, run_ids: Sequence[int], reason: str) -> dict[int, tuple[bool, RunState]]:
        """Cancel each that has not ended; tell for each whether that was so, and the state that it has now."""

        def work(tx: Transaction) -> dict[int, tuple[bool, RunState]]:
            live = [id_ for id_, state in store.states(tx, run_ids, lock=True).items() if state not in ENDED]
            for run_id in live:
                self.cancel_in(tx, run_id, reason)
            record_change(tx)
            return {id_: (id_ in live, state) for id_, state in store.states(tx, run_ids).items()}

        return await self._db.transact(work)

    def cancel_in(self, tx: Transaction, run_id: int, reason: str) -> None:
        run = list_store.get(tx, run_id, lock=True)
        if run is None:
            raise NotFound("run", run_id)
        at, reason = self._clock(), storable(reason)
        if store.cancel_queued(tx, run_id, reason, at):
            data = {"state": "cancelled", "outcome": "cancelled", "reason": reason}
            events.append(tx, [Fact("run_finished", run.project, run_id, run.task_id, data)], at)
            counters.add(tx, [metrics.ended_count(run.project, RunState.CANCELLED, RunOutcome.CANCELLED)], at)
        elif store.ask_to_cancel(tx, run_id):
            events.append(tx, [Fact("run_cancel_requested", run.project, run_id, run.task_id)], at)
        else:
            raise Conflict(f"run {run_id} has already finished ({run.state})")

    def live_of(self, tx: Transaction, task_ids: Sequence[int]) -> dict[int, list[tuple[int, str]]]:
        """Id and state of the runs of each task that have not ended."""
        return store.live_tasks(tx, task_ids) if task_ids else {}

    def set_limit(self, tx: Transaction, key: str, max_running: int | None) -> None:
        """Let at most ``max_running`` runs that ``key`` counts run at once (``lanes.py`` has the keys)."""
        store.set_limit(tx, key, max_running)

    async def log(self, run_id: int, attempt: int | None = None) -> bytes:
        """The log of an attempt as far as it is known: by default of the newest one."""
        return await (await self.open_log(run_id, attempt)).whole()

    async def open_log(self, run_id: int, attempt: int | None = None, *, whole_lines: bool = False) -> StoredLog:
        """That log, to be read in parts; of a run that is live, or was lost, what was shipped (its ``whole_lines``)."""
        wanted = attempt or (await self.get(run_id)).attempt
        for ended in await self.attempts(run_id):
            if ended.attempt == wanted and ended.log_key:
                missing = damage_record("this log is missing: there is no file of it any more") + b"\n"
                log = await open_log(self._blobs, ended.log_key) or log_in_memory(missing)
                log.late_from = ended.late_from
                return log
        return live_log([data for _, data in await self.live_log(run_id, wanted)], whole_lines=whole_lines)

    async def records(self, run_id: int, attempt: int | None, asked: LogQuery) -> AsyncIterator[list[LogRecord]]:
        """The records of a log that are wanted, in their order."""
        async for batch in search(await self.open_log(run_id, attempt), asked):
            yield batch

    async def live_log(self, run_id: int, attempt: int, after: int = -1) -> Sequence[tuple[int, bytes]]:
        """Numbered pieces of a running attempt's log, from ``after`` on."""
        return await self._db.read(lambda tx: lease_store.live_log(tx, run_id, attempt, after))

    def has_waited(self, tx: Transaction, now: Moment) -> bool:
        """Whether the back-off or delay of some run is over."""
        return store.has_waited(tx, now)

    async def wake_waiting(self) -> int:
        """Make runs ready whose back-off or delay is over."""

        def work(tx: Transaction) -> int:
            woken = store.wake_waiting(tx, self._clock())
            lanes = store.lanes_by_id(tx, woken) if woken else {}
            ready: Counter[str] = Counter()
            for lane, count in woken.items():
                ready[lanes[lane].queue] += count
            tx.after_commit(lambda: self._wakeups.add_all(ready))
            return sum(woken.values())

        return await self._db.transact(work)

    def _lane_id(self, tx: Transaction, lane: Lane) -> int:
        known = self._lane_ids.get(lane)
        if known is None:
            known = store.lane_id(tx, lane)
            tx.after_commit(lambda: self._lane_ids.__setitem__(lane, known))
        return known

    def _check_bounds(self, tx: Transaction, new: Sequence[NewRun]) -> None:
        """Refuse what would grow a project's queue past its bound, so that one producer cannot drown the rest.

        Runs are counted anew after a while, and before a refusal: some may have been leased since.
        """
        for project, count in Counter(run.project for run in new).items():
            counted_at, waiting, bound = self._waiting.get(project, (float("-inf"), 0, None))
            is_full = bound is not None and waiting + count > bound
            if is_full or time.monotonic() - counted_at > RECOUNT_SECONDS:
                bound = store.max_queued(tx, project)
                waiting = store.waiting_in_project(tx, project, bound + 1) if bound is not None else 0
                counted_at = time.monotonic()
            if bound is not None and waiting + count > bound:
                raise QueueFull(project, bound)
            self._waiting[project] = (counted_at, waiting + count, bound)

    def _known(self, tx: Transaction, new: Sequence[NewRun]) -> list[SubmitResolution]:
        """The earlier run for each of ``new``, a duplicate in the batch, or None where it is the first of its kind."""
        keyed = {(run.project, run.idempotency_key) for run in new if run.idempotency_key}
        known = store.known_keys(tx, [(project, key or "") for project, key in keyed])
        requests = earlier(new, known)
        targets: dict[tuple[str, str], BatchDuplicate] = {}
        return [
            same_request(run, place, requests) or self._same_target(tx, run, place, targets)
            for place, run in enumerate(new)
        ]

    def _same_target(
        self, tx: Transaction, run: NewRun, place: int, targets: dict[tuple[str, str], BatchDuplicate]
    ) -> SubmitResolution:
        if not run.dedup_key:
            return None
        since = self._clock() - seconds(run.dedup_seconds)
        if duplicate := store.live_duplicate(tx, run.project, run.dedup_key, since):
            return Submitted(duplicate, fresh=False, why=SAME_TARGET)
        repeated = targets.setdefault((run.project, run.dedup_key), BatchDuplicate(place, SAME_TARGET))
        return repeated if repeated.place != place else None

    def _remember(self, tx: Transaction, queued: Sequence[tuple[NewRun, int]]) -> None:
        """Keep which run each key made, so that the next submit with it finds that run."""
        at = self._clock()
        store.remember_keys(tx, [key_row(run, run_id, at) for run, run_id in queued if run.idempotency_key])
        for run, run_id in queued:
            if run.dedup_key:
                store.remember_duplicate_key(tx, run.project, run.dedup_key, run_id, at)


class Pauses:
    """Pauses and resumes runs that can keep their progress (a spider's JOBDIR, a crawl's frontier).

    A queued run is paused at once. A running one is asked, as with a cancel, at its worker's next heartbeat; the worker
    keeps its progress and gives it back.
    """

    def __init__(self, db: Database, wakeups: Wakeups, clock: Clock) -> None:
        self._db, self._wakeups, self._clock = db, wakeups, clock

    async def pause(self, run_id: int) -> Run:
        """Hold a waiting run back, or ask the worker of a running one to stop it where it is."""
        return await self._db.transact(lambda tx: self._pause(tx, run_id))

    async def resume(self, run_id: int) -> Run:
        """Let a paused run go on; of one that was only asked to pause, take that back."""
        return await self._db.transact(lambda tx: self._resume(tx, run_id))

    def _pause(self, tx: Transaction, run_id: int) -> Run:
        run = _locked_run(tx, run_id)
        if run.state in ENDED:
            raise Conflict(f"run {run_id} has already finished ({run.state})")
        if run.state is RunState.PAUSED:
            return run
        if not (run.spec.spec.get("resumable") or run.spec.spec.get("frontier")):
            why = "only a spider whose spec says resumable, or has a frontier, keeps its place"
            raise Conflict(f"run {run_id} cannot be paused: {why}")
        store.request_pause(tx, run_id)
        if run.state is RunState.QUEUED:
            store.pause_queued(tx, run_id)
            self._append(tx, "run_paused", run)
        else:
            self._append(tx, "run_pause_requested", run)
        record_change(tx)
        return _locked_run(tx, run_id)

    def _resume(self, tx: Transaction, run_id: int) -> Run:
        run = _locked_run(tx, run_id)
        if run.state in ENDED or not store.withdraw_pause(tx, run_id):
            raise Conflict(f"run {run_id} is not paused ({run.state})")
        if store.requeue_paused(tx, run_id):
            self._append(tx, "run_resumed", run)
            lane_id = store.lane_id_of(tx, run_id)
            queue = store.lanes_by_id(tx, [lane_id])[lane_id].queue
            tx.after_commit(lambda: self._wakeups.add_all({queue: 1}))
        record_change(tx)
        return _locked_run(tx, run_id)

    def _append(self, tx: Transaction, kind: str, run: Run) -> None:
        events.append(tx, [Fact(kind, run.project, run.id, run.task_id)], self._clock())


def _locked_run(tx: Transaction, run_id: int) -> Run:
    run = list_store.get(tx, run_id, lock=True)
    if run is None:
        raise NotFound("run", run_id)
    return run
