"""Endings: what becomes of a run, and of the slots that it took, when an attempt of it ends."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from weft import events
from weft.clock import Clock, Moment, seconds
from weft.counters import store as counters
from weft.db.database import Raced, Transaction
from weft.errors import Invalid
from weft.events import Fact
from weft.runs import lease_store, store, success_store
from weft.runs.lease_store import AttemptKey, HeldRun
from weft.runs.metrics import ended_on_worker_counts
from weft.runs.model import ENDED, LIMITS, Ending, Retry, RunOutcome, RunState, storable
from weft.runs.success import (
    COUNTS,
    MARKED,
    RunCondition,
    RunMark,
    RunStats,
    decided,
    marks_of,
    median,
    undecided_text,
    unmet,
)
from weft.runs.wakeups import Wakeups

MERCY = 3
"""How many times its allowed losses a run may have that was never the only suspect."""


class EndingVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an ended attempt means for its run."""

    state: RunState
    outcome: RunOutcome
    tries: int
    losses: int
    delay_seconds: float = 0.0
    reason: str = ""


def judge(
    ending: Ending, *, retry: Retry, tries: int, losses: int, cancel_requested: bool, beside: int = -1
) -> EndingVerdict:
    """Decide what becomes of a run whose attempt ended so; ``tries`` and ``losses`` count the attempts before it.

    ``beside`` are the losses of that run, of those that lost their worker with this one, which had lost most before.
    """
    outcome = RunOutcome(ending.outcome)
    if outcome is RunOutcome.SUCCEEDED:
        return EndingVerdict(
            state=RunState.SUCCEEDED, outcome=outcome, tries=tries + 1, losses=losses, reason=ending.reason
        )
    if cancel_requested or outcome is RunOutcome.CANCELLED:
        reason = ending.reason or "cancelled"
        return EndingVerdict(
            state=RunState.CANCELLED, outcome=RunOutcome.CANCELLED, tries=tries, losses=losses, reason=reason
        )
    if outcome is RunOutcome.RELEASED:
        delay = ending.retry_after_seconds or 0.0
        return EndingVerdict(
            state=RunState.QUEUED,
            outcome=outcome,
            tries=tries,
            losses=losses,
            delay_seconds=delay,
            reason=ending.reason,
        )
    if outcome is RunOutcome.LOST:
        return _judge_loss(ending, retry, tries, losses + 1, is_suspect=losses > beside)
    return _judge_failure(ending, outcome, retry, tries + 1, losses)


def _judge_loss(ending: Ending, retry: Retry, tries: int, losses: int, *, is_suspect: bool) -> EndingVerdict:
    """A run that is lost too often is poison, unless another that was lost with it is as likely to be."""
    allowed = retry.losses if is_suspect else retry.losses * MERCY
    again = "lost" in retry.on and losses < allowed
    reason = ending.reason if again else f"{ending.reason} ({losses} of {retry.losses} allowed losses)"
    return EndingVerdict(
        state=RunState.QUEUED if again else RunState.FAILED,
        outcome=RunOutcome.LOST,
        tries=tries,
        losses=losses,
        delay_seconds=ending.retry_after_seconds or 0.0 if again else 0.0,
        reason=reason,
    )


def _judge_failure(ending: Ending, outcome: RunOutcome, retry: Retry, tries: int, losses: int) -> EndingVerdict:
    again = not ending.permanent and outcome in retry.on and tries <= retry.count
    delay = retry.delay(tries, random.random())
    return EndingVerdict(
        state=RunState.QUEUED if again else RunState.FAILED,
        outcome=outcome,
        tries=tries,
        losses=losses,
        delay_seconds=max(delay, ending.retry_after_seconds or 0.0) if again else 0.0,
        reason=ending.reason,
    )


log = logging.getLogger(__name__)

REPORTED_OUTCOMES = ("succeeded", "failed", "timeout", "cancelled", "released", *LIMITS)
"""The outcomes that are a worker's to tell."""

COUNTED = ("spider", "crawl")
"""Kinds whose runs tell what they have counted."""
MARKED_KIND = "spider"
"""The kind whose runs are marked: what looks odd of a spider is nothing special in a part of a crawl."""
NO_STATS = RunStats()

NO_RETRY = Retry()

SECONDS_APART, MOST_APART = 0.3, 3.0
"""Between runs that come back one by one: more than a scheduler takes to look, less than a lost run may wait in all."""

WorkerEndings = tuple[int, Sequence[Ending]]
"""A worker, and how some of its attempts have ended."""


class Endings:
    """Writes how attempts have ended, in the caller's transaction."""

    def __init__(self, wakeups: Wakeups, clock: Clock) -> None:
        self._wakeups, self._clock = wakeups, clock
        self._queues: dict[int, str] = {}

    def finish(self, tx: Transaction, told: Sequence[WorkerEndings]) -> list[list[bool]]:
        """End attempts; False for each that its worker no longer holds, of which nothing is changed."""
        rows = lease_store.held(tx, [ending.run_id for _, endings in told for ending in endings])
        mine: dict[tuple[int, int], tuple[int, Ending]] = {}
        for place, (worker_id, endings) in enumerate(told):
            for ending in endings:
                row = rows.get(ending.run_id)
                if row is not None and (row.lease_worker, row.attempt) == (worker_id, ending.attempt):
                    mine.setdefault((ending.run_id, ending.attempt), (place, _kept(ending)))
        self.end(tx, [ending for _, ending in mine.values()], rows)
        self._keep_late_logs(tx, told, mine)
        first = {key: place for key, (place, _) in mine.items()}  # told again by another call, it is no longer held
        return [
            [first.get((ending.run_id, ending.attempt)) == place for ending in endings]
            for place, (_, endings) in enumerate(told)
        ]

    def _keep_late_logs(self, tx: Transaction, told: Sequence[WorkerEndings], mine: Collection[AttemptKey]) -> None:
        """Keep the logs of attempts that their workers were given up as lost with; nothing else is taken of these."""
        for worker_id, endings in told:
            late = {
                (each.run_id, each.attempt): (each.log_key, each.log_bytes or 0)
                for each in endings
                if each.log_key is not None and (each.run_id, each.attempt) not in mine
            }
            if late:
                kept = lease_store.keep_late_logs(tx, worker_id, late)
                told_of = {"worker_id": worker_id, "attempts": sorted(kept)}
                tx.after_commit(lambda told_of=told_of: log.info("logs came late", extra=told_of))  # type: ignore[misc]

    def expire(self, tx: Transaction, worker_id: int, reason: str, limit: int) -> int:
        """End some of the attempts of a worker that is given up for lost; return how many."""
        rows = lease_store.held_by(tx, worker_id, limit)
        self.end(tx, _lost(rows, reason), {row.id: row for row in rows})
        return len(rows)

    def end(self, tx: Transaction, endings: Sequence[Ending], rows: Mapping[int, HeldRun]) -> None:
        """Write what each ending means for its run. ``rows`` were read at the endings' attempts; if one of them has
        changed since, all of this is done again."""
        at = self._clock()
        figures = _stats(tx, endings, rows)
        endings, conditions = _under_conditions(tx, endings, rows, figures)
        retries = lease_store.retries(tx, [e.run_id for e in endings if e.outcome != RunOutcome.SUCCEEDED.value])
        verdicts = [(e, rows[e.run_id], _judge(e, rows, retries.get(e.run_id, NO_RETRY))) for e in endings]
        again = [(e, row, verdict) for e, row, verdict in verdicts if verdict.state is RunState.QUEUED]
        marks = _marks(tx, verdicts, figures, conditions)
        changes = [_run_row(ending, row, verdict, at, marked=row.id in marks) for ending, row, verdict in verdicts]
        if figures or conditions:  # or all of these runs are of kinds whose columns for them are always empty
            for change, (_, row, _) in zip(changes, verdicts, strict=True):
                change |= _counted(row, figures.get(row.id, NO_STATS), marks.get(row.id), conditions.get(row.id))
        changed = lease_store.end(
            tx, changes, [_attempt_row(ending, row, verdict, at) for ending, row, verdict in again]
        )
        if changed != len(verdicts):
            raise Raced(f"{len(verdicts) - changed} of {len(verdicts)} runs changed hands")
        freed: Counter[str] = Counter()
        for _, row, _ in verdicts:
            freed.update(row.slots.split(",") if row.slots else ())
        store.take_slots(tx, {key: -count for key, count in freed.items()})
        in_time = [(e.run_id, e.attempt) for e in endings if e.log_key and rows[e.run_id].late_from is None]
        lease_store.drop_logs(tx, in_time)
        events.append(tx, [_fact(row, verdict) for _, row, verdict in verdicts], at)
        over = [(row, verdict.state, verdict.outcome) for _, row, verdict in verdicts if verdict.state in ENDED]
        counters.add(tx, ended_on_worker_counts(over), at)
        self._ring_for(tx, verdicts)

    def _ring_for(self, tx: Transaction, verdicts: Sequence[tuple[Ending, HeldRun, EndingVerdict]]) -> None:
        again = {
            row.lane_id
            for _, row, verdict in verdicts
            if verdict.state is RunState.QUEUED and not verdict.delay_seconds
        }
        unblocked = {row.lane_id for _, row, _ in verdicts if row.slots}
        for lane_id in again | unblocked:
            queue = self._queue(tx, lane_id)
            tx.after_commit(lambda queue=queue: self._wakeups.add(queue))  # type: ignore[misc]

    def _queue(self, tx: Transaction, lane_id: int) -> str:
        if lane_id not in self._queues:
            self._queues[lane_id] = store.lanes_by_id(tx, [lane_id])[lane_id].queue
        return self._queues[lane_id]


def _lost(rows: Sequence[HeldRun], reason: str) -> list[Ending]:
    """Endings of runs that lost their worker together.

    One of them may have killed it. Those that were lost before come back one by one, farther apart after each loss, so
    that it does not meet the same others again and the guilty one is found.
    """
    before = [row for row in rows if row.losses]
    later = {row.id: min(place * row.losses * SECONDS_APART, MOST_APART) for place, row in enumerate(before)}
    return [
        Ending(
            *(row.id, row.attempt, RunOutcome.LOST.value, reason),
            retry_after_seconds=later.get(row.id),
            log_key=row.log_key,  # its worker has started again, and brought it, before anybody missed it
            log_bytes=row.log_bytes,
        )
        for row in rows
    ]


def _stats(tx: Transaction, endings: Sequence[Ending], rows: Mapping[int, HeldRun]) -> dict[int, RunStats]:
    """What the attempts have counted, by run; those of other kinds count nothing."""
    told = {(e.run_id, e.attempt): e.result for e in endings if rows[e.run_id].kind in COUNTED}
    return (
        {run_id: found for (run_id, _), found in success_store.run_stats_of_attempts(tx, told).items()} if told else {}
    )


def _under_conditions(
    tx: Transaction, endings: Sequence[Ending], rows: Mapping[int, HeldRun], figures: Mapping[int, RunStats]
) -> tuple[list[Ending], dict[int, list[RunCondition]]]:
    """The endings, and what became of each condition: an attempt has failed for which one does not hold; one that
    cannot be decided for want of a number fails nothing, but is told."""
    judged: list[Ending] = []
    found: dict[int, list[RunCondition]] = {}
    for ending in endings:
        row = rows[ending.run_id]
        if row.conditions is not None and ending.outcome == RunOutcome.SUCCEEDED.value:
            conditions = _decode_conditions(row.conditions)
            usual = _baseline(tx, row, conditions)
            found[row.id] = decided(conditions, figures.get(row.id, NO_STATS), usual)
            if why := unmet(found[row.id]):
                ending = msgspec.structs.replace(
                    ending, outcome=RunOutcome.CONDITION.value, reason=_why(why, ending, figures.get(row.id, NO_STATS))
                )
            elif lacking := undecided_text(found[row.id]):
                reason = f"{ending.reason}; {lacking}" if ending.reason else lacking
                ending = msgspec.structs.replace(ending, reason=storable(reason))
        judged.append(ending)
    return judged, found


def _why(unmet: str, ending: Ending, figures: RunStats) -> str:
    """Which conditions did not hold, and what else its worker says; that tells the close reason in its own words."""
    is_told = ending.reason == f"closed: {figures.finish_reason}"
    return storable(f"{unmet}; {ending.reason}" if ending.reason and not is_told else unmet)


def _baseline(tx: Transaction, row: HeldRun, conditions: Sequence[RunCondition]) -> dict[str, float]:
    """What is usual of the figures that a condition compares with it."""
    names = {each.name for each in conditions if each.bound == "min_percent_of_usual"}
    before = success_store.earlier_successes(tx, row.project, row.task, row.id) if names else ()
    middles = {name: median([n for each in before if (n := each._mapping[name]) is not None]) for name in names}
    return {name: middle for name, middle in middles.items() if middle is not None}


def _marks(
    tx: Transaction,
    verdicts: Sequence[tuple[Ending, HeldRun, EndingVerdict]],
    figures: Mapping[int, RunStats],
    conditions: Mapping[int, Sequence[RunCondition]],
) -> dict[int, list[RunMark]]:
    """What does not look like success, of the spiders that succeeded."""
    good = [row.id for _, row, each in verdicts if row.kind == MARKED_KIND and each.outcome is RunOutcome.SUCCEEDED]
    found = {run_id: marks for run_id in good if (marks := marks_of(figures.get(run_id, NO_STATS)))}
    idle = [run_id for run_id, marks in found.items() if RunMark.NO_REQUESTS in marks or RunMark.NO_ITEMS in marks]
    for run_id in success_store.shares_frontier(tx, idle):
        found[run_id] = [each for each in found[run_id] if each not in (RunMark.NO_REQUESTS, RunMark.NO_ITEMS)]
    for run_id in good:
        if any(each.undecided is not None for each in conditions.get(run_id, ())):
            found[run_id] = [*found.get(run_id, ()), RunMark.UNDECIDED]
    return {run_id: marks for run_id, marks in found.items() if marks}


def _counted(
    row: HeldRun, figures: RunStats, marks: Sequence[RunMark] | None, conditions: Sequence[RunCondition] | None
) -> dict[str, Any]:
    """What the columns of a run say of its last attempt."""
    told = row.conditions if conditions is None else msgspec.json.encode(conditions).decode()
    return {name: getattr(figures, name) for name in (*COUNTS, "finish_reason")} | {
        "marks": None if marks is None else msgspec.json.encode(marks).decode(),
        "conditions": told,
    }


_decode_conditions = msgspec.json.Decoder(list[RunCondition]).decode


def _judge(ending: Ending, rows: Mapping[int, HeldRun], retry: Retry) -> EndingVerdict:
    row, beside = rows[ending.run_id], -1
    if ending.outcome == RunOutcome.LOST.value:
        beside = max((other.losses for other in rows.values() if other is not row), default=-1)
    return judge(
        ending,
        retry=retry,
        tries=row.tries,
        losses=row.losses,
        cancel_requested=bool(row.cancel_requested),
        beside=beside,
    )


def _kept(ending: Ending) -> Ending:
    if ending.outcome not in REPORTED_OUTCOMES:
        raise Invalid("outcome", ending.outcome, f"it must be one of {', '.join(REPORTED_OUTCOMES)}")
    return msgspec.structs.replace(ending, reason=storable(ending.reason)) if ending.reason else ending


def _run_row(ending: Ending, row: HeldRun, verdict: EndingVerdict, at: Moment, *, marked: bool) -> dict[str, Any]:
    again = verdict.state is RunState.QUEUED
    held = again and bool(row.pause_requested)
    return {
        "id": row.id,
        "attempt": row.attempt,
        "cancel_requested": row.cancel_requested,
        "state": RunState.PAUSED.value if held else verdict.state.value,
        "tries": verdict.tries,
        "losses": verdict.losses,
        "ready_lane": row.lane_id if again and not verdict.delay_seconds and not held else None,
        "not_before": at + seconds(verdict.delay_seconds) if again and verdict.delay_seconds and not held else None,
        "lease_worker": None,
        "finished_at": None if again else at,
        "outcome": None if again else verdict.outcome.value,
        "reason": verdict.reason or None,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "result": msgspec.json.encode(ending.result).decode() if ending.result is not None else None,
        "log_key": None if again else ending.log_key,
        "log_bytes": None if again else ending.log_bytes,
        "late_from": None if again else row.late_from,
        "live_task": row.task_id if again else None,
        "trouble": MARKED if marked else _trouble(verdict, again=again, held=held),
        **({"slots": row.slots} if row.slots else {}),
    }


def _trouble(verdict: EndingVerdict, *, again: bool, held: bool) -> str | None:
    """What stands out about a run, for the index that finds it."""
    if again:
        return RunState.PAUSED.value if held else None
    return None if verdict.outcome is RunOutcome.SUCCEEDED else verdict.outcome.value


def _attempt_row(ending: Ending, row: HeldRun, verdict: EndingVerdict, at: Moment) -> dict[str, Any]:
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
        "late_from": row.late_from,
    }


def _fact(row: HeldRun, verdict: EndingVerdict) -> Fact:
    if verdict.state in ENDED:
        data: dict[str, Any] = {
            "state": verdict.state.value,
            "outcome": verdict.outcome.value,
            "reason": verdict.reason,
        }
        return Fact("run_finished", row.project, row.id, row.task_id, data)
    kind = "run_released" if verdict.outcome is RunOutcome.RELEASED else "run_retried"
    kind = "run_paused" if row.pause_requested else kind
    data = {"attempt": row.attempt, "outcome": verdict.outcome.value, "reason": verdict.reason}
    return Fact(kind, row.project, row.id, row.task_id, data)
