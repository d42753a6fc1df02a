"""The SQL of leases. Every write that follows a lease names its attempt; the row count decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, Update, and_, bindparam, exists, func, insert, literal_column, select, update
from sqlalchemy.sql.expression import delete

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many, skip_locked, update_many
from weft.db.database import Transaction
from weft.errors import LeaseLost
from weft.runs.model import Lease, Retry, RunSpec, RunState

runs = schema.runs


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker that takes a lease."""

    worker_id: int
    worker: str


_decode_spec = msgspec.json.Decoder(RunSpec).decode


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


def ready(tx: Transaction, lane: int, count: int, floor: int | None) -> Sequence[Any]:
    """Up to ``count`` runs of ``lane``, highest priority first, none below ``floor``; locked for this transaction."""
    return tx.rows(_ready(floored=floor is not None), {"lane": lane, "most": count, "floor": floor})


def claim(tx: Transaction, rows: Sequence[Any], holders: Sequence[Holder], slots: str | None, at: Moment) -> None:
    """Lease each of ``rows``, which ``ready`` has brought, to the holder at its place.

    Refused where a holder was given up for lost: nobody would notice that such a lease is not held.
    """
    taken: dict[Holder, list[int]] = {}
    for row, holder in zip(rows, holders, strict=True):
        taken.setdefault(holder, []).append(row.id)
    if len(taken) == 1:
        [(holder, ids)] = taken.items()
        given = {"ids": ids, "by": holder.worker_id, "name": holder.worker, "held": slots, "at": at}
        claimed = tx.execute(_claim(), given).rowcount
    else:
        claimed = _claim_for_many(tx, rows, holders, slots, at)
    if not claimed:
        raise LeaseLost(", ".join(holder.worker for holder in taken))
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
        {"id": row.id, "attempt": row.attempt + 1, "lease_worker": holder.worker_id, "worker": holder.worker} | same
        for row, holder in zip(rows, holders, strict=True)
    ]
    return update_many(tx, runs, claims, match=("id",), extra=STILL_QUEUED)


@cache
def _present() -> Select[Any]:
    workers = schema.workers
    named = workers.c.id.in_(bindparam("ids", expanding=True))
    return select(workers.c.id).where(named, workers.c.state != literal_column("'offline'"))


@cache
def _ready(*, floored: bool) -> Select[Any]:
    fields = (runs.c.id, runs.c.attempt, runs.c.project, runs.c.task, runs.c.task_id, runs.c.kind)
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
        attempt=row.attempt + 1,
        project=row.project,
        task=row.task,
        kind=row.kind,
        correlation_id=row.correlation_id,
        traceparent=row.traceparent,
        spec=_decode_spec(row.spec),
    )


HELD = (
    runs.c.id,
    runs.c.attempt,
    runs.c.lease_worker,
    runs.c.project,
    runs.c.task,
    runs.c.task_id,
    runs.c.lane_id,
    runs.c.tries,
    runs.c.losses,
    runs.c.cancel_requested,
    runs.c.slots,
    runs.c.started_at,
    runs.c.worker,
)


def held(tx: Transaction, run_ids: Collection[int]) -> dict[int, Any]:
    """The rows of ``run_ids`` that a worker holds now."""
    return {row.id: row for row in tx.rows(_held(), {"ids": list(run_ids)})}


@cache
def _held() -> Select[Any]:
    named = runs.c.id.in_(bindparam("ids", expanding=True))
    return select(*HELD).where(named, runs.c.lease_worker.is_not(None))


def held_by(tx: Transaction, worker_id: int, limit: int) -> list[Any]:
    """Some of the rows that ``worker_id`` holds."""
    query = select(*HELD).where(runs.c.lease_worker == worker_id).order_by(runs.c.id).limit(limit)
    return list(tx.rows(query))


def retries(tx: Transaction, run_ids: Collection[int]) -> dict[int, Retry]:
    """How each of the runs is to be tried again."""
    rows = tx.rows(select(runs.c.id, runs.c.spec).where(runs.c.id.in_(run_ids))) if run_ids else []
    return {row.id: _decode_spec(row.spec).retry for row in rows}


def keep(tx: Transaction, run_ids: Collection[int], worker_id: int) -> set[tuple[int, int]]:
    """Run and attempt of those of ``run_ids`` that ``worker_id`` holds, and will hold until the transaction ends."""
    query = select(runs.c.id, runs.c.attempt).where(runs.c.id.in_(run_ids), runs.c.lease_worker == worker_id)
    return {(row.id, row.attempt) for row in tx.rows(query.order_by(runs.c.id).with_for_update())}


def leases_of(tx: Transaction, worker_id: int) -> list[tuple[int, int, bool]]:
    """Run, attempt and whether to cancel, for all that ``worker_id`` holds."""
    return [(row.id, row.attempt, bool(row.cancel_requested)) for row in tx.rows(_leases_of(), {"by": worker_id})]


@cache
def _leases_of() -> Select[Any]:
    return select(runs.c.id, runs.c.attempt, runs.c.cancel_requested).where(runs.c.lease_worker == bindparam("by"))


def running_by_project(tx: Transaction, worker_ids: Collection[int]) -> dict[str, int]:
    query = select(runs.c.project, func.count()).where(runs.c.lease_worker.in_(worker_ids)).group_by(runs.c.project)
    return dict(tx.rows(query))


def weights(tx: Transaction, projects: Iterable[str]) -> dict[str, float]:
    rows = tx.rows(select(schema.projects.c.name, schema.projects.c.weight).where(schema.projects.c.name.in_(projects)))
    return dict(rows)


STILL_QUEUED = runs.c.state == literal_column(f"'{RunState.QUEUED.value}'")
STILL_RUNNING = runs.c.state == literal_column(f"'{RunState.RUNNING.value}'")


def end(tx: Transaction, rows: Sequence[Mapping[str, Any]], attempts: Sequence[Mapping[str, Any]]) -> int:
    """Write how attempts ended on each run that is still as it was read; return how many.

    As it was: at that attempt, as cancelled, and counted by the same limits (``slots``, which stay on the run), or the
    places of a limit that was set meanwhile would never be given back. ``attempts`` are those that others will follow.
    """
    insert_many(tx, schema.attempts, attempts)
    counted, uncounted = [row for row in rows if "slots" in row], [row for row in rows if "slots" not in row]
    same = ("id", "attempt", "cancel_requested")
    ended = update_many(tx, runs, uncounted, match=same, extra=and_(STILL_RUNNING, runs.c.slots.is_(None)))
    return ended + update_many(tx, runs, counted, match=(*same, "slots"), extra=STILL_RUNNING)


def add_log(tx: Transaction, chunks: Sequence[Mapping[str, Any]]) -> None:
    """Keep pieces of live logs; a piece that was shipped before is not kept twice."""
    table = schema.log_chunks
    for chunk in chunks:
        same = and_(table.c.run_id == chunk["run_id"], table.c.attempt == chunk["attempt"], table.c.seq == chunk["seq"])
        if tx.value(select(table.c.seq).where(same)) is None:
            tx.execute(insert(table).values(chunk))


def drop_logs(tx: Transaction, ended: Collection[tuple[int, int]]) -> None:
    table = schema.log_chunks
    for run_id, attempt in ended:
        tx.execute(delete(table).where(table.c.run_id == run_id, table.c.attempt == attempt))


def live_log(tx: Transaction, run_id: int, attempt: int, after: int = -1) -> list[tuple[int, bytes]]:
    """The pieces of a running attempt's log with numbers above ``after``."""
    table = schema.log_chunks
    query = select(table.c.seq, table.c.data).where(
        table.c.run_id == run_id, table.c.attempt == attempt, table.c.seq > after
    )
    return [(row.seq, bytes(row.data)) for row in tx.rows(query.order_by(table.c.seq))]
