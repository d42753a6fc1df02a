"""The SQL of leasing: which lanes have ready runs, and whose those runs become."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, TextClause, Update, bindparam, exists, func, literal_column, select, text, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import skip_locked, update_many
from weft.db.database import Transaction
from weft.errors import LeaseLost
from weft.runs.model import Lease, RunSpec, RunState

runs = schema.runs

_decode_spec = msgspec.json.Decoder(RunSpec).decode

STILL_QUEUED = runs.c.state == literal_column(f"'{RunState.QUEUED.value}'")


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker that takes a lease."""

    worker_id: int
    worker: str


def ready_lanes(tx: Transaction, after: int, limit: int) -> tuple[list[int], bool]:
    """Ids above ``after`` of lanes that have ready runs, and whether there is any limit at all.

    One step in the index a lane, however many runs wait in it.
    """
    rows = tx.rows(_ready_lanes(), {"after": after, "most": limit})
    return [row.lane for row in rows], any(row.limited for row in rows)


@cache
def _ready_lanes() -> Select[Any]:
    first = select(func.min(runs.c.ready_lane).label("lane")).where(runs.c.ready_lane > bindparam("after"))
    found = first.cte("found", recursive=True)
    following = select(func.min(runs.c.ready_lane)).where(runs.c.ready_lane > found.c.lane).scalar_subquery()
    found = found.union_all(select(following).where(found.c.lane.is_not(None)))
    limited = exists(select(schema.limits.c.key)).label("limited")
    return select(found.c.lane, limited).where(found.c.lane.is_not(None)).limit(bindparam("most"))


def head_priorities(tx: Transaction, lane_ids: Collection[int]) -> dict[int, int]:
    """The highest priority that waits in each lane."""
    rows = tx.rows(_head_priorities(), {"ids": list(lane_ids)})
    return {lane: priority for lane, priority in rows if priority is not None}


@cache
def _head_priorities() -> Select[Any]:
    lanes = schema.lanes
    head = select(func.max(runs.c.priority)).where(runs.c.ready_lane == lanes.c.id).scalar_subquery()
    return select(lanes.c.id, head).where(lanes.c.id.in_(bindparam("ids", expanding=True)))


def running_by_project(tx: Transaction, worker_ids: Collection[int]) -> dict[str, int]:
    query = select(runs.c.project, func.count()).where(runs.c.lease_worker.in_(worker_ids)).group_by(runs.c.project)
    return dict(tx.rows(query))


def weights(tx: Transaction, projects: Iterable[str]) -> dict[str, float]:
    rows = tx.rows(select(schema.projects.c.name, schema.projects.c.weight).where(schema.projects.c.name.in_(projects)))
    return dict(rows)


def take(
    tx: Transaction, lane: int, holders: Sequence[Holder], floor: int | None, slots: str | None, at: Moment
) -> Sequence[Any]:
    """Lease ready runs of ``lane``, highest priority first and none below ``floor``, the first of them to the first of
    ``holders`` and so on; return them as they were read, but for their attempt.

    Refused where a holder was given up for lost: nobody would notice that such a lease is not held.
    """
    if tx.connection.dialect.name == "postgresql":
        return _take_in_one_step(tx, lane, holders, floor, slots, at)
    rows = tx.rows(_ready(floored=floor is not None), {"lane": lane, "most": len(holders), "floor": floor})
    if rows:
        _claim_all(tx, rows, holders[: len(rows)], slots, at)
    return rows


def _claim_all(tx: Transaction, rows: Sequence[Any], holders: Sequence[Holder], slots: str | None, at: Moment) -> None:
    taken = set(holders)
    if len(taken) == 1:
        given = {"ids": [row.id for row in rows], "by": holders[0].worker_id, "name": holders[0].worker}
        claimed = tx.execute(_claim(), given | {"held": slots, "at": at}).rowcount
    else:
        claimed = _claim_for_many(tx, rows, holders, slots, at)
    if not claimed:
        raise LeaseLost(", ".join(sorted(holder.worker for holder in taken)))
    if claimed != len(rows):  # the rows were locked, so this cannot be; if it is, nothing may be leased
        raise AssertionError(f"{claimed} of {len(rows)} locked runs were claimed")


def _claim_for_many(
    tx: Transaction, rows: Sequence[Any], holders: Sequence[Holder], slots: str | None, at: Moment
) -> int:
    workers = {holder.worker_id for holder in holders}
    if len(tx.rows(_present(), {"ids": list(workers)})) != len(workers):
        return 0
    same = {"ready_lane": None, "slots": slots, "started_at": at, "state": RunState.RUNNING.value}
    claims = [
        {"id": row.id, "attempt": row.attempt, "lease_worker": holder.worker_id, "worker": holder.worker} | same
        for row, holder in zip(rows, holders, strict=True)
    ]
    return update_many(tx, runs, claims, match=("id",), extra=STILL_QUEUED)


def _take_in_one_step(
    tx: Transaction, lane: int, holders: Sequence[Holder], floor: int | None, slots: str | None, at: Moment
) -> Sequence[Any]:
    """The same in one statement: with a server, each one more is a way there and back."""
    by = [holder.worker_id for holder in holders]
    rows = tx.rows(
        _taking(floored=floor is not None), {"lane": lane, "floor": floor, "by": by, "held": slots, "at": at}
    )
    if any(row.attempt is None for row in rows):
        raise LeaseLost(", ".join(sorted({holder.worker for holder in holders})))
    return rows


@cache
def _taking(*, floored: bool) -> TextClause:
    return text(
        """WITH found AS MATERIALIZED (
            SELECT id, priority FROM runs WHERE ready_lane = :lane FLOOR
            ORDER BY priority DESC, id LIMIT cardinality(CAST(:by AS bigint[])) FOR UPDATE SKIP LOCKED
        ), placed AS (
            SELECT id, row_number() OVER (ORDER BY priority DESC, id) AS place FROM found
        ), seated AS (
            SELECT placed.id, workers.id AS by, workers.name
            FROM placed JOIN unnest(CAST(:by AS bigint[])) WITH ORDINALITY AS seats (by, place) USING (place)
            JOIN workers ON workers.id = seats.by AND workers.state <> 'offline'
        ), taken AS (
            UPDATE runs SET state = 'running', attempt = attempt + 1, ready_lane = NULL, lease_worker = seated.by,
                worker = seated.name, slots = :held, started_at = :at
            FROM seated WHERE runs.id = seated.id AND state = 'queued'
            RETURNING runs.id, attempt, project, task, task_id, kind, correlation_id, traceparent, spec
        )
        SELECT placed.id, attempt, project, task, task_id, kind, correlation_id, traceparent, spec
        FROM placed LEFT JOIN taken ON taken.id = placed.id ORDER BY place""".replace(
            "FLOOR", "AND priority >= :floor" if floored else ""
        )
    )


@cache
def _present() -> Select[Any]:
    workers = schema.workers
    named = workers.c.id.in_(bindparam("ids", expanding=True))
    return select(workers.c.id).where(named, workers.c.state != literal_column("'offline'"))


@cache
def _ready(*, floored: bool) -> Select[Any]:
    fields = (
        runs.c.id,
        (runs.c.attempt + 1).label("attempt"),
        runs.c.project,
        runs.c.task,
        runs.c.task_id,
        runs.c.kind,
    )
    query = select(*fields, runs.c.correlation_id, runs.c.traceparent, runs.c.spec)
    query = query.where(runs.c.ready_lane == bindparam("lane"))
    if floored:
        query = query.where(runs.c.priority >= bindparam("floor"))
    return skip_locked(query.order_by(runs.c.priority.desc(), runs.c.id).limit(bindparam("most")))


@cache
def _claim() -> Update:
    workers = schema.workers
    is_there = exists().where(workers.c.id == bindparam("by"), workers.c.state != literal_column("'offline'"))
    return (
        update(runs)
        .where(runs.c.id.in_(bindparam("ids", expanding=True)), STILL_QUEUED, is_there)
        .values(
            state=literal_column(f"'{RunState.RUNNING.value}'"),
            attempt=runs.c.attempt + 1,
            ready_lane=None,
            lease_worker=bindparam("by"),
            worker=bindparam("name"),
            slots=bindparam("held"),
            started_at=bindparam("at"),
        )
    )


def lease_of(row: Any) -> Lease:
    """The lease of a run that was just claimed."""
    return Lease(
        run_id=row.id,
        attempt=row.attempt,
        project=row.project,
        task=row.task,
        kind=row.kind,
        correlation_id=row.correlation_id,
        traceparent=row.traceparent,
        spec=_decode_spec(row.spec),
        asks_for_secrets="{{secret:" in row.spec,
    )
