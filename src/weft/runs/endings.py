"""Endings: what becomes of a run when an attempt of it ends, and of the places that it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from weft import events
from weft.clock import Clock, Moment, seconds
from weft.db.database import Raced, Transaction
from weft.errors import Invalid
from weft.events import Fact
from weft.runs import lease_store, limit_store, store
from weft.runs.bell import Bell
from weft.runs.judging import Verdict, judge
from weft.runs.model import ENDED, HELD, LIMITS, Ending, Outcome, Retry, RunState, storable

TOLD = ("succeeded", "failed", "timeout", "cancelled", "released", *LIMITS)
"""The outcomes that are a worker's to tell."""

NO_RETRY = Retry()

SECONDS_APART, MOST_APART = 0.3, 3.0
"""Between runs that come back one by one: more than a scheduler takes to look, less than a lost run may wait in all."""

Told = tuple[int, Sequence[Ending]]
"""A worker, and how some of its attempts have ended."""


class Endings:
    """Writes how attempts have ended, in the caller's transaction."""

    def __init__(self, bell: Bell, clock: Clock) -> None:
        self._bell, self._clock = bell, clock
        self._queues: dict[int, str] = {}

    def finish(self, tx: Transaction, told: Sequence[Told]) -> list[list[bool]]:
        """End attempts; False for each that its worker no longer holds, of which nothing is changed."""
        rows = lease_store.held(tx, [ending.run_id for _, endings in told for ending in endings])
        mine: dict[tuple[int, int], tuple[int, Ending]] = {}
        for place, (worker_id, endings) in enumerate(told):
            for ending in endings:
                row = rows.get(ending.run_id)
                if row is not None and (row.lease_worker, row.attempt) == (worker_id, ending.attempt):
                    mine.setdefault((ending.run_id, ending.attempt), (place, _kept(ending)))
        self.end(tx, [ending for _, ending in mine.values()], rows)
        first = {key: place for key, (place, _) in mine.items()}  # told again by another call, it is no longer held
        return [
            [first.get((ending.run_id, ending.attempt)) == place for ending in endings]
            for place, (_, endings) in enumerate(told)
        ]

    def expire(self, tx: Transaction, worker_id: int, reason: str, limit: int) -> int:
        """End some of the attempts of a worker that is given up for lost; return how many."""
        rows = lease_store.held_by(tx, worker_id, limit)
        self.end(tx, _lost(rows, reason), {row.id: row for row in rows})
        return len(rows)

    def end(self, tx: Transaction, endings: Sequence[Ending], rows: dict[int, Any]) -> None:
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
        limit_store.take_places(tx, {key: -count for key, count in freed.items()})
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
            queue = self._queue(tx, lane_id)
            tx.after_commit(lambda queue=queue: self._bell.add(queue))  # type: ignore[misc]

    def _queue(self, tx: Transaction, lane_id: int) -> str:
        if lane_id not in self._queues:
            self._queues[lane_id] = store.lanes_by_id(tx, [lane_id])[lane_id].queue
        return self._queues[lane_id]


def _lost(rows: Sequence[Any], reason: str) -> list[Ending]:
    """Endings of runs that lost their worker together.

    One of them may have killed it. Those that were lost before come back one by one, farther apart after each loss, so
    that it does not meet the same others again and the guilty one is found.
    """
    before = [row for row in rows if row.losses]
    later = {row.id: min(place * row.losses * SECONDS_APART, MOST_APART) for place, row in enumerate(before)}
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
        "ready_lane": row.lane_id if again and not verdict.delay_seconds and not row.pause_requested else None,
        "not_before": _not_before(row, verdict, at) if again else None,
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


def _not_before(row: Any, verdict: Verdict, at: Moment) -> Moment | None:
    """When a run may be tried again: a paused one not before somebody says so."""
    if row.pause_requested:
        return HELD
    return at + seconds(verdict.delay_seconds) if verdict.delay_seconds else None


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
    kind = "run_paused" if row.pause_requested else kind
    data = {"attempt": row.attempt, "outcome": verdict.outcome.value, "reason": verdict.reason}
    return Fact(kind, row.project, row.id, row.task_id, data)
