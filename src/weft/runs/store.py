"""The SQL of runs: queue, count, limit, pause, cancel, measure; idempotency keys and keys against duplicates.

Lists are in ``list_store.py``, leases in ``lease_store.py``. A paused run is in a state of its own, so nothing that
looks for work ever meets it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, and_, bindparam, delete, func, insert, or_, select, tuple_, update

from weft.clock import SECOND, Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing, reserve_ids
from weft.db.database import Transaction
from weft.runs.lanes import Lane
from weft.runs.model import UNLEASED, Attempt, NewRun, RunOutcome, RunState

runs, attempts, lanes = schema.runs, schema.attempts, schema.lanes
keys, dedup = schema.idempotency_keys, schema.dedup_keys

Key = tuple[str, str]
"""A project, and an idempotency key of it."""

_encode = msgspec.json.encode


def lane_id(tx: Transaction, lane: Lane) -> int:
    """The id of ``lane``, which is created where it is new."""
    found = tx.value(select(lanes.c.id).where(lanes.c.key == lane.key))
    if found is None:
        row = {"key": lane.key, "project": lane.project}
        row |= {"labels": _encode(lane.labels).decode(), "limits": _encode(lane.limits).decode()}
        insert_missing(tx, lanes, row)
        found = tx.value(select(lanes.c.id).where(lanes.c.key == lane.key))
    return int(found)


def lanes_by_id(tx: Transaction, ids: Collection[int]) -> dict[int, Lane]:
    rows = tx.rows(select(lanes.c.id, lanes.c.project, lanes.c.labels, lanes.c.limits).where(lanes.c.id.in_(ids)))
    decode = msgspec.json.decode
    return {row.id: Lane(row.project, tuple(decode(row.labels)), tuple(decode(row.limits))) for row in rows}


def add(tx: Transaction, new: Sequence[NewRun], lane_ids: Sequence[int], at: Moment) -> Sequence[int]:
    """Insert runs; each is ready at once unless it is to wait or was skipped."""
    ids = reserve_ids(tx, schema.run_ids, len(new))
    begin, chance = f"{at // SECOND:08x}", os.urandom(20 * len(new)).hex()
    rows = [
        _row(run_id, run, lane, begin + chance[40 * number : 40 * (number + 1)], at)
        for number, (run_id, run, lane) in enumerate(zip(ids, new, lane_ids, strict=True))
    ]
    if any(run.conditions for run in new):
        for row, run in zip(rows, new, strict=True):
            row["conditions"] = _encode(run.conditions).decode() if run.conditions else None
    insert_many(tx, runs, rows)
    return ids


def _row(run_id: int, run: NewRun, lane: int, chance: str, at: Moment) -> dict[str, Any]:
    """A run that has none is given an id for its whole flow and a trace (W3C traceparent), made from ``chance``.

    They begin with the time, so that the index of flows grows at its end.
    """
    skipped = run.skipped is not None
    return {
        "id": run_id,
        "project": run.project,
        "task_id": run.task_id,
        "task": run.task,
        "kind": run.kind,
        "spec": _encode(run.spec).decode(),
        "trigger": run.trigger.value,
        "fire_at": run.fire_at,
        "correlation_id": run.correlation_id or chance[:32],
        "traceparent": run.traceparent or f"00-{chance[:32]}-{chance[32:]}-01",
        "priority": run.priority,
        "lane_id": lane,
        "state": "cancelled" if skipped else "queued",
        "attempt": 0,
        "tries": 0,
        "losses": 0,
        "ready_lane": lane if run.not_before is None and not skipped else None,
        "not_before": None if skipped else run.not_before,
        "cancel_requested": False,
        "queued_at": at,
        "finished_at": at if skipped else None,
        "outcome": RunOutcome.SKIPPED.value if skipped else None,
        "reason": run.skipped,
        "live_task": None if skipped else run.task_id,
        "trouble": RunOutcome.SKIPPED.value if skipped else None,
    }


def attempts_of(tx: Transaction, run_id: int) -> list[Attempt]:
    """Every attempt that has ended: those before the last have rows of their own, the last is on the run."""
    fields = [column for column in attempts.c if column.name != "run_id"]
    rows = tx.rows(select(*fields).where(attempts.c.run_id == run_id).order_by(attempts.c.attempt))
    ended = [Attempt(**row._mapping) for row in rows]
    last = [runs.c[column.name] for column in fields]
    row = tx.execute(select(*last).where(runs.c.id == run_id, runs.c.finished_at.is_not(None))).first()
    if row is not None and row.attempt > (ended[-1].attempt if ended else 0):
        ended.append(Attempt(**row._mapping))
    return ended


def states(tx: Transaction, run_ids: Collection[int], *, lock: bool = False) -> dict[int, RunState]:
    """The state of each run that there is; with ``lock`` it stays so until the transaction ends."""
    query = select(runs.c.id, runs.c.state).where(runs.c.id.in_(run_ids)).order_by(runs.c.id)
    return {row.id: RunState(row.state) for row in tx.rows(query.with_for_update() if lock else query)}


def projects_of(tx: Transaction, run_ids: Collection[int]) -> dict[int, str]:
    return dict(tx.rows(select(runs.c.id, runs.c.project).where(runs.c.id.in_(run_ids))))


def count_live(tx: Transaction, projects: Collection[str] | None = None) -> dict[str, int]:
    """How many runs are ready, waiting, paused and running: quick however many have ended."""
    counts = {
        "ready": runs.c.ready_lane.is_not(None),
        "waiting": runs.c.not_before.is_not(None),
        "paused": runs.c.trouble == RunState.PAUSED.value,
        "running": runs.c.lease_worker.is_not(None),
    }
    # As a value: else a database may rather look at every run of the projects.
    within = [] if projects is None else [runs.c.project.concat("").in_(projects)]
    return {name: int(tx.value(select(func.count()).where(each, *within))) for name, each in counts.items()}


def count_held(tx: Transaction, projects: Collection[str] | None = None) -> int:
    """How many ready runs a limit of runs at once holds back: those that could not start if every worker were free."""
    limits = schema.limits
    room = {
        row[0]: max(0, row[1] - row[2]) for row in tx.rows(select(limits.c.key, limits.c.max_running, limits.c.in_use))
    }
    if not room:
        return 0
    by_lane = select(runs.c.ready_lane, func.count()).where(runs.c.ready_lane.is_not(None)).group_by(runs.c.ready_lane)
    counts = dict(tx.rows(by_lane))
    held = 0
    for lane_id, lane in (lanes_by_id(tx, counts) if counts else {}).items():
        bounds = [key for key in lane.limits if key in room]
        free = min([counts[lane_id], *(room[key] for key in bounds)])
        for key in bounds:
            room[key] -= free
        if projects is None or lane.project in projects:
            held += counts[lane_id] - free
    return held


MOST_COUNTED = 20_000
"""How many of the newest runs, of each project, a count looks at, so that it never costs more than a moment."""


def count_ended(tx: Transaction, since: Moment, projects: Collection[str] | None = None) -> dict[str, int]:
    """How many runs ended at or after ``since``, by outcome."""
    counted: Counter[str] = Counter()
    for within in [[]] if projects is None else [[runs.c.project == name] for name in projects]:
        newest_ones = (
            select(runs.c.outcome, runs.c.finished_at)
            .where(*within)
            .order_by(runs.c.id.desc())
            .limit(MOST_COUNTED)
            .subquery()
        )
        ended = newest_ones.c.finished_at >= since
        query = select(newest_ones.c.outcome, func.count()).where(ended).group_by(newest_ones.c.outcome)
        counted.update({outcome: int(count) for outcome, count in tx.rows(query)})
    return dict(counted)


def waiting_in_project(tx: Transaction, project: str, at_most: int) -> int:
    """How many runs of ``project`` are ready, counted no further than ``at_most``."""
    in_project = select(lanes.c.id).where(lanes.c.project == project)
    counted = select(runs.c.id).where(runs.c.ready_lane.in_(in_project)).limit(at_most).subquery()
    return int(tx.value(select(func.count()).select_from(counted)))


def max_queued(tx: Transaction, project: str) -> int | None:
    """The bound of a project's queue, if it has one."""
    bound = tx.value(select(schema.projects.c.max_queued).where(schema.projects.c.name == project))
    return None if bound is None else int(bound)


def live_tasks(tx: Transaction, task_ids: Collection[int]) -> dict[int, list[tuple[int, str]]]:
    """The runs that have not ended of each of ``task_ids``."""
    found: dict[int, list[tuple[int, str]]] = {}
    query = select(runs.c.live_task, runs.c.id, runs.c.state).where(runs.c.live_task.in_(task_ids))
    for row in tx.rows(query.order_by(runs.c.id)):
        found.setdefault(row.live_task, []).append((row.id, row.state))
    return found


def cancel_queued(tx: Transaction, run_id: int, reason: str, at: Moment) -> bool:
    """Cancel a run that no worker holds."""
    statement = (
        update(runs)
        .where(runs.c.id == run_id, runs.c.state.in_(UNLEASED))
        .values(
            state=RunState.CANCELLED.value,
            outcome=RunOutcome.CANCELLED.value,
            reason=reason,
            ready_lane=None,
            not_before=None,
            cancel_requested=True,
            finished_at=at,
            live_task=None,
            trouble=RunOutcome.CANCELLED.value,
        )
    )
    return tx.execute(statement).rowcount == 1


def ask_to_cancel(tx: Transaction, run_id: int) -> bool:
    """Leave word for the worker that holds the run; its next heartbeat reads it."""
    statement = (
        update(runs).where(runs.c.id == run_id, runs.c.state == RunState.RUNNING.value).values(cancel_requested=True)
    )
    return tx.execute(statement).rowcount == 1


def has_waited(tx: Transaction, at: Moment) -> bool:
    """Whether the waiting time of some run is over."""
    return tx.value(select(runs.c.id).where(runs.c.not_before <= at).limit(1)) is not None


def set_back(tx: Transaction, since: Moment, by: Moment) -> None:
    """Let back-offs that end after ``since`` end earlier by so much, and what was queued by a clock that was ahead.

    The moment that somebody has named for a run stays.
    """
    is_wait = or_(runs.c.attempt > 0, runs.c.queued_at > since - by)
    tx.execute(update(runs).where(runs.c.not_before > since, is_wait).values(not_before=runs.c.not_before - by))


def wake_waiting(tx: Transaction, at: Moment, limit: int = 500) -> dict[int, int]:
    """Make runs ready whose waiting time is over; return how many in each lane."""
    due = (
        select(runs.c.id, runs.c.lane_id)
        .where(runs.c.not_before <= at)
        .order_by(runs.c.not_before)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = tx.rows(due)
    if rows:
        ids = [row.id for row in rows]
        ready = and_(runs.c.id.in_(ids), runs.c.state == RunState.QUEUED.value)
        tx.execute(update(runs).where(ready).values(ready_lane=runs.c.lane_id, not_before=None))
    woken: dict[int, int] = {}
    for row in rows:
        woken[row.lane_id] = woken.get(row.lane_id, 0) + 1
    return woken


limits = schema.limits


def free_slots(tx: Transaction, keys: Collection[str]) -> dict[str, int]:
    """How many more runs each limit allows; the limits stay locked until the transaction ends."""
    return {row.key: row.max_running - row.in_use for row in tx.rows(_locked_limits(), {"keys": list(keys)})}


@cache
def _locked_limits() -> Select[Any]:
    named = limits.c.key.in_(bindparam("keys", expanding=True))
    return select(limits).where(named).order_by(limits.c.key).with_for_update()


def take_slots(tx: Transaction, taken: Mapping[str, int]) -> None:
    """Count runs in (positive) or out (negative) of their limits."""
    for key in sorted(taken):
        if taken[key]:
            tx.execute(update(limits).where(limits.c.key == key).values(in_use=limits.c.in_use + taken[key]))


def limit_of(tx: Transaction, key: str) -> int | None:
    """How many runs that this key counts may run at once."""
    found = tx.value(select(limits.c.max_running).where(limits.c.key == key))
    return None if found is None else int(found)


def set_limit(tx: Transaction, key: str, max_running: int | None) -> None:
    """Let at most ``max_running`` runs that this key counts run at once; None removes the limit."""
    if max_running is None:
        tx.execute(delete(limits).where(limits.c.key == key))
        return
    changed = tx.execute(update(limits).where(limits.c.key == key).values(max_running=max_running)).rowcount
    if not changed and tx.value(select(limits.c.key).where(limits.c.key == key)) is None:
        tx.execute(insert(limits).values(key=key, max_running=max_running, in_use=_count_running(tx, key)))


def _count_running(tx: Transaction, key: str) -> int:
    """Let the runs that run already take places under ``key``, and give them back at their ends; return how many."""
    lanes = schema.lanes
    query = select(runs.c.id, runs.c.slots, lanes.c.limits).join(lanes, lanes.c.id == runs.c.lane_id)
    counted: dict[str, list[int]] = {}
    for row in tx.rows(query.where(runs.c.lease_worker.is_not(None)).with_for_update()):
        held = set(row.slots.split(",") if row.slots else ())
        if key in held or key in msgspec.json.decode(row.limits):
            counted.setdefault(",".join(sorted(held | {key})), []).append(row.id)
    for slots, ids in counted.items():
        tx.execute(update(runs).where(runs.c.id.in_(ids)).values(slots=slots))
    return sum(map(len, counted.values()))


def request_pause(tx: Transaction, run_id: int) -> None:
    """Leave word that the run is to pause; the next heartbeat of its worker reads it."""
    tx.execute(update(runs).where(runs.c.id == run_id).values(pause_requested=True))


def withdraw_pause(tx: Transaction, run_id: int) -> bool:
    """Forget that word; False where nobody has left it."""
    asked = and_(runs.c.id == run_id, runs.c.pause_requested.is_(True))
    return tx.execute(update(runs).where(asked).values(pause_requested=None)).rowcount == 1


def pause_queued(tx: Transaction, run_id: int) -> bool:
    """Hold a queued run back."""
    queued = and_(runs.c.id == run_id, runs.c.state == RunState.QUEUED.value)
    held = {"state": RunState.PAUSED.value, "trouble": RunState.PAUSED.value, "ready_lane": None, "not_before": None}
    return tx.execute(update(runs).where(queued).values(held)).rowcount == 1


def requeue_paused(tx: Transaction, run_id: int) -> bool:
    """Make a held run ready; that it was paused is no reason any more, and its attempts keep what was said of them."""
    held = and_(runs.c.id == run_id, runs.c.state == RunState.PAUSED.value)
    ready = {"state": RunState.QUEUED.value, "trouble": None, "ready_lane": runs.c.lane_id, "reason": None}
    return tx.execute(update(runs).where(held).values(ready)).rowcount == 1


def lane_id_of(tx: Transaction, run_id: int) -> int:
    return int(tx.value(select(runs.c.lane_id).where(runs.c.id == run_id)))


events = schema.events

RunningCounts = dict[tuple[str, str, str, str], int]


def last_event_id(tx: Transaction) -> int:
    return int(tx.value(select(func.max(events.c.id))) or 0)


def running_counts(tx: Transaction, limit: int) -> RunningCounts:
    """How many runs run, by project, kind, task and worker."""
    columns = (runs.c.project, runs.c.kind, runs.c.task, runs.c.worker)
    query = select(*columns, func.count()).where(runs.c.lease_worker.is_not(None)).group_by(*columns)
    return {(row[0], row[1], row[2], row[3] or ""): int(row[4]) for row in tx.rows(query.limit(limit))}


def reported_results(tx: Transaction, above: int, after: Moment, upto: Moment, limit: int) -> Sequence[Any]:
    """Project, task and result of each task's newest run whose end was told in that time and that may have numbers.

    The newest ``limit`` of them, oldest first.
    """
    told = and_(events.c.id > above, events.c.at > after, events.c.at <= upto, events.c.kind == "run_finished")
    last = func.max(events.c.id)
    found = select(last.label("id")).join(runs, runs.c.id == events.c.run_id)
    found = found.where(told, runs.c.result.like('%"metrics":%')).group_by(runs.c.project, runs.c.task)
    newest = found.order_by(last.desc()).limit(limit).subquery()
    query = select(runs.c.project, runs.c.task, runs.c.result).join(events, events.c.run_id == runs.c.id)
    return tx.rows(query.join(newest, newest.c.id == events.c.id).order_by(events.c.id))


def known_keys(tx: Transaction, wanted: Sequence[Key]) -> dict[Key, tuple[str, int]]:
    """Digest and run of each (project, key) that was used before."""
    if not wanted:
        return {}
    query = select(keys).where(tuple_(keys.c.project, keys.c.key).in_(wanted))
    return {(row.project, row.key): (row.digest, row.run_id) for row in tx.rows(query)}


def remember_keys(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep which run each key made; a concurrent submit with one of them fails and is run again."""
    insert_many(tx, keys, rows)


def live_duplicate(tx: Transaction, project: str, key: str, since: Moment) -> int | None:
    """The run for this dedup key that has not ended, or ended after ``since``.

    Holds the key until the transaction ends, so that two submits of one target cannot both find nothing.
    """
    insert_missing(tx, dedup, {"project": project, "key": key, "run_id": 0, "at": 0})
    held = select(dedup.c.run_id).where(dedup.c.project == project, dedup.c.key == key).with_for_update()
    run_id = tx.value(held)
    row = tx.execute(select(runs.c.state, runs.c.finished_at).where(runs.c.id == run_id)).first() if run_id else None
    if row is None:
        return None
    return int(run_id) if row.finished_at is None or row.finished_at > since else None


def remember_duplicate_key(tx: Transaction, project: str, key: str, run_id: int, at: Moment) -> None:
    held = (dedup.c.project == project, dedup.c.key == key)
    tx.execute(update(dedup).where(*held).values(run_id=run_id, at=at))
