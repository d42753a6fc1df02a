"""The SQL of runs: queue, count, cancel. Lists are in ``list_store.py``, leases in ``lease_store.py``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import and_, func, select, update

from weft.clock import SECOND, Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing, reserve_ids
from weft.db.database import Transaction
from weft.runs.lanes import Lane
from weft.runs.model import Attempt, NewRun, Outcome, RunState

runs, attempts, lanes = schema.runs, schema.attempts, schema.lanes

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
        "outcome": Outcome.SKIPPED.value if skipped else None,
        "reason": run.skipped,
        "live_task": None if skipped else run.task_id,
        "trouble": Outcome.SKIPPED.value if skipped else None,
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
    """How many runs are ready, waiting and running: quick however many have ended."""
    counts = {
        "ready": runs.c.ready_lane,
        "waiting": runs.c.not_before,
        "running": runs.c.lease_worker,
    }
    # As a value: else a database may rather look at every run of the projects.
    within = [] if projects is None else [runs.c.project.concat("").in_(projects)]
    return {
        name: int(tx.value(select(func.count()).where(column.is_not(None), *within))) for name, column in counts.items()
    }


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
        .where(runs.c.id == run_id, runs.c.state == RunState.QUEUED.value)
        .values(
            state=RunState.CANCELLED.value,
            outcome=Outcome.CANCELLED.value,
            reason=reason,
            ready_lane=None,
            not_before=None,
            cancel_requested=True,
            finished_at=at,
            live_task=None,
            trouble=Outcome.CANCELLED.value,
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
