"""The SQL of leases: which lanes have ready runs, who claims them, and what their holders write.

Every write that follows a lease names its attempt; the row count decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    CompoundSelect,
    Select,
    Subquery,
    TextClause,
    Update,
    and_,
    bindparam,
    exists,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.sql.expression import delete

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many, skip_locked, update_many
from weft.db.database import Transaction
from weft.errors import LeaseLost
from weft.runs.model import Lease, Retry, RunSpec, RunState

runs = schema.runs

_decode_spec = msgspec.json.Decoder(RunSpec).decode

STILL_QUEUED = runs.c.state == literal_column(f"'{RunState.QUEUED.value}'")


@dataclass(frozen=True, slots=True)
class LeaseHolder:
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


@dataclass(frozen=True, slots=True)
class AvailableWorker:
    """A worker that takes runs."""

    worker_id: int
    name: str
    capacity: int
    labels: frozenset[str]


def available_workers(tx: Transaction) -> list[AvailableWorker]:
    """Every worker that is there and takes runs."""
    return [
        AvailableWorker(row.id, row.name, row.capacity, frozenset(msgspec.json.decode(row.labels)))
        for row in tx.rows(_available_workers())
    ]


@cache
def _available_workers() -> Select[Any]:
    workers = schema.workers
    fields = (workers.c.id, workers.c.name, workers.c.capacity, workers.c.labels)
    return select(*fields).where(workers.c.state.in_((literal_column("'online'"), literal_column("'busy'"))))


def held_and_ready(
    tx: Transaction, worker_ids: Collection[int], lane_ids: Collection[int], most: int
) -> tuple[dict[int, int], int]:
    """How many runs each worker holds, where any, and how many of these lanes are ready: ``most`` where there are more.

    Seen at one moment: a run that is leased meanwhile is counted either here or there.
    """
    found = dict(
        map(tuple, tx.rows(_held_and_ready(), {"workers": list(worker_ids), "lanes": list(lane_ids), "most": most}))
    )
    ready = found.pop(None, 0)
    return found, ready


@cache
def _held_and_ready() -> CompoundSelect[Any]:
    held = select(runs.c.lease_worker, func.count()).where(
        runs.c.lease_worker.in_(bindparam("workers", expanding=True))
    )
    return union_all(held.group_by(runs.c.lease_worker), select(null(), func.count()).select_from(_some_ready()))


def count_ready(tx: Transaction, lane_ids: Collection[int], most: int) -> int:
    """How many runs of these lanes are ready; ``most`` where there are more."""
    return int(tx.value(_count_ready(), {"lanes": list(lane_ids), "most": most}))


@cache
def _count_ready() -> Select[Any]:
    return select(func.count()).select_from(_some_ready())


def _some_ready() -> Subquery:
    ready = select(runs.c.id).where(runs.c.ready_lane.in_(bindparam("lanes", expanding=True)))
    return ready.limit(bindparam("most")).subquery()


NEWEST = 64
"""Among how many runs the newest of each worker is looked for."""


def newest_runs(tx: Transaction) -> dict[str, int]:
    """The newest run that each worker, by its name, has had, as far as the newest of all show it."""
    return dict(map(tuple, tx.rows(_newest_runs())))


@cache
def _newest_runs() -> Select[Any]:
    newest = select(runs.c.id, runs.c.worker).order_by(runs.c.id.desc()).limit(NEWEST).subquery()
    had = select(newest.c.worker, func.max(newest.c.id)).where(newest.c.worker.is_not(None))
    return had.group_by(newest.c.worker)


def project_weights(tx: Transaction, projects: Iterable[str]) -> dict[str, float]:
    rows = tx.rows(select(schema.projects.c.name, schema.projects.c.weight).where(schema.projects.c.name.in_(projects)))
    return dict(rows)


class TakenRun(NamedTuple):
    """A run as it was read to be leased, but for its attempt."""

    id: int
    attempt: int
    project: str
    task: str
    task_id: int | None
    kind: str
    correlation_id: str
    traceparent: str
    spec: str


def take(
    tx: Transaction, lane: int, holders: Sequence[LeaseHolder], floor: int | None, slots: str | None, at: Moment
) -> list[TakenRun]:
    """Lease ready runs of ``lane``, highest priority first and none below ``floor``, the first of them to the first of
    ``holders`` and so on.

    Refused where a holder was given up for lost: nobody would notice that such a lease is not held.
    """
    if tx.connection.dialect.name == "postgresql":
        return _take_in_one_step(tx, lane, holders, floor, slots, at)
    query = _ready(floored=floor is not None)
    taken = list(map(TakenRun._make, tx.rows(query, {"lane": lane, "most": len(holders), "floor": floor})))
    if taken:
        _claim_all(tx, taken, holders[: len(taken)], slots, at)
    return taken


def _claim_all(
    tx: Transaction, rows: Sequence[TakenRun], holders: Sequence[LeaseHolder], slots: str | None, at: Moment
) -> None:
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
    tx: Transaction, rows: Sequence[TakenRun], holders: Sequence[LeaseHolder], slots: str | None, at: Moment
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
    tx: Transaction, lane: int, holders: Sequence[LeaseHolder], floor: int | None, slots: str | None, at: Moment
) -> list[TakenRun]:
    """The same in one statement: with a server, each one more is a way there and back."""
    by = [holder.worker_id for holder in holders]
    rows = tx.rows(
        _taking(floored=floor is not None), {"lane": lane, "floor": floor, "by": by, "held": slots, "at": at}
    )
    if any(row.attempt is None for row in rows):
        raise LeaseLost(", ".join(sorted({holder.worker for holder in holders})))
    return list(map(TakenRun._make, rows))


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


def lease_of(run: TakenRun) -> Lease:
    """The lease of a run that was just claimed."""
    return Lease(
        run_id=run.id,
        attempt=run.attempt,
        project=run.project,
        task=run.task,
        kind=run.kind,
        correlation_id=run.correlation_id,
        traceparent=run.traceparent,
        spec=_decode_spec(run.spec),
        asks_for_secrets="{{secret:" in run.spec,
    )


AttemptKey = tuple[int, int]
"""A run and an attempt of it."""


class HeldRun(NamedTuple):
    """A run that a worker holds: what must be known of it to end its attempt.

    So many are read, and each field so often, that looking one up in a row of the database would take too long.
    """

    id: int
    attempt: int
    lease_worker: int
    project: str
    task: str
    task_id: int | None
    lane_id: int
    tries: int
    losses: int
    cancel_requested: bool
    pause_requested: bool | None
    slots: str | None
    queued_at: Moment
    fire_at: Moment | None
    trigger: str
    started_at: Moment | None
    worker: str | None
    kind: str
    conditions: str | None
    log_key: str | None
    log_bytes: int | None
    late_from: int | None


HELD = [runs.c[name] for name in HeldRun._fields]


def held(tx: Transaction, run_ids: Collection[int]) -> dict[int, HeldRun]:
    """Those of ``run_ids`` that a worker holds now."""
    return {row.id: row for row in map(HeldRun._make, tx.rows(_held(), {"ids": list(run_ids)}))}


@cache
def _held() -> Select[Any]:
    named = runs.c.id.in_(bindparam("ids", expanding=True))
    return select(*HELD).where(named, runs.c.lease_worker.is_not(None))


def held_by(tx: Transaction, worker_id: int, limit: int) -> list[HeldRun]:
    """Some of the runs that ``worker_id`` holds; nobody else changes them until the transaction ends."""
    query = select(*HELD).where(runs.c.lease_worker == worker_id).order_by(runs.c.id).limit(limit)
    return list(map(HeldRun._make, tx.rows(query.with_for_update())))


def pins_of(tx: Transaction, worker_id: int) -> set[str]:
    """The digests of the code that the runs of ``worker_id`` are pinned to."""
    specs = tx.rows(select(runs.c.spec).where(runs.c.lease_worker == worker_id))
    return {spec.code.digest for row in specs if (spec := _decode_spec(row.spec)).code is not None}


def retries(tx: Transaction, run_ids: Collection[int]) -> dict[int, Retry]:
    """How each of the runs is to be tried again."""
    rows = tx.rows(select(runs.c.id, runs.c.spec).where(runs.c.id.in_(run_ids))) if run_ids else []
    return {row.id: _decode_spec(row.spec).retry for row in rows}


def keep(tx: Transaction, run_ids: Collection[int], worker_id: int) -> set[tuple[int, int]]:
    """Run and attempt of those of ``run_ids`` that ``worker_id`` holds, and will hold until the transaction ends."""
    query = select(runs.c.id, runs.c.attempt).where(runs.c.id.in_(run_ids), runs.c.lease_worker == worker_id)
    return {(row.id, row.attempt) for row in tx.rows(query.order_by(runs.c.id).with_for_update())}


def leases_of(tx: Transaction, worker_id: int) -> Sequence[Any]:
    """Of all that ``worker_id`` holds the run, its attempt, and whether it is to be cancelled or paused."""
    return tx.rows(_leases_of(), {"by": worker_id})


@cache
def _leases_of() -> Select[Any]:
    wanted = select(runs.c.id, runs.c.attempt, runs.c.cancel_requested, runs.c.pause_requested)
    return wanted.where(runs.c.lease_worker == bindparam("by"))


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


def add_log(
    tx: Transaction, chunks: Sequence[Mapping[str, Any]], room: Mapping[tuple[int, int], int]
) -> Counter[tuple[int, int]]:
    """Keep pieces of live logs as long as there is ``room`` for bytes of their attempt; return what was kept of each.

    A piece that was shipped before is not kept twice, and one that does not fit is dropped.
    """
    kept: Counter[tuple[int, int]] = Counter()
    for chunk in chunks:
        attempt, size = (chunk["run_id"], chunk["attempt"]), len(chunk["data"])
        if 0 < size <= room[attempt] - kept[attempt] and _add_piece(tx, chunk):
            kept[attempt] += size
    return kept


def _add_piece(tx: Transaction, chunk: Mapping[str, Any]) -> bool:
    table = schema.log_chunks
    same = and_(table.c.run_id == chunk["run_id"], table.c.attempt == chunk["attempt"], table.c.seq == chunk["seq"])
    if tx.value(select(table.c.seq).where(same)) is not None:
        return False
    tx.execute(insert(table).values(chunk))
    return True


def log_sizes(tx: Transaction, run_ids: Collection[int]) -> dict[tuple[int, int], tuple[int, int]]:
    """By run and its attempt, how many bytes its log may have and how many of its live log are kept."""
    table = schema.log_chunks
    mine = and_(table.c.run_id == runs.c.id, table.c.attempt == runs.c.attempt)
    kept = select(func.coalesce(func.sum(func.length(table.c.data)), 0)).where(mine).scalar_subquery()
    query = select(runs.c.id, runs.c.attempt, runs.c.spec, kept.label("kept")).where(runs.c.id.in_(run_ids))
    return {(row.id, row.attempt): (_decode_spec(row.spec).log_bytes, int(row.kept)) for row in tx.rows(query)}


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


def executed_by(tx: Transaction, places: Collection[AttemptKey], worker_id: int, worker: str) -> dict[AttemptKey, Any]:
    """Those attempts that ``worker_id`` holds or has surely executed under an earlier id, with their run."""
    attempts = schema.attempts
    ids = {run_id for run_id, _ in places}
    wanted = select(runs.c.id, runs.c.project, runs.c.task, runs.c.task_id, runs.c.kind, runs.c.spec, runs.c.attempt)
    wanted = wanted.add_columns(runs.c.lease_worker, runs.c.worker, runs.c.started_at, runs.c.conditions)
    wanted = wanted.where(runs.c.id.in_(ids))
    found = {row.id: row for row in tx.rows(wanted)}
    holders = {worker_id, *same_key(tx, worker_id, {row.lease_worker for row in found.values()})}
    own = {(row.id, row.attempt): row for row in found.values() if row.lease_worker in holders}
    since = named_since(tx, worker_id, worker)
    if since is not None:
        last = [row for row in found.values() if row.worker == worker and (row.started_at or 0) >= since]
        own |= {(row.id, row.attempt): row for row in last}
        earlier = select(attempts.c.run_id, attempts.c.attempt, attempts.c.started_at)
        earlier = earlier.where(attempts.c.run_id.in_(ids), attempts.c.worker == worker)
        rows = [row for row in tx.rows(earlier) if row.run_id in found and (row.started_at or 0) >= since]
        own |= {(row.run_id, row.attempt): found[row.run_id] for row in rows}
    return {place: own[place] for place in places if place in own}


def same_key(tx: Transaction, worker_id: int, others: Collection[int | None]) -> set[int]:
    """Those of ``others`` that came through a gateway with the key of ``worker_id``: itself, before it restarted."""
    workers = schema.workers
    ids = {worker_id} | {each for each in others if each is not None}
    keys = {row.id: row.key_id for row in tx.rows(select(workers.c.id, workers.c.key_id).where(workers.c.id.in_(ids)))}
    key_id = keys.get(worker_id)
    return set() if key_id is None else {each for each, its_key in keys.items() if its_key == key_id}


def named_since(tx: Transaction, worker_id: int, worker: str) -> Moment | None:
    """Since when whoever was called ``worker`` was this worker; None where that cannot be known.

    A worker that reaches the database is believed. One that comes through a gateway has chosen its name itself, so
    only its key counts: it is not older than that, and nobody else may have been seen under its name.
    """
    workers, keys = schema.workers, schema.api_keys
    row = tx.execute(select(workers.c.key_id).where(workers.c.id == worker_id)).first()
    if row is None or not worker:
        return None
    if row.key_id is None:
        return 0
    same = select(workers.c.key_id).where(workers.c.name == worker).distinct()
    if any(other.key_id != row.key_id for other in tx.rows(same)):
        return None
    made_at = tx.value(select(keys.c.created_at).where(keys.c.id == row.key_id))
    return None if made_at is None else int(made_at)


def keep_late_logs(tx: Transaction, worker_id: int, logs: Mapping[AttemptKey, tuple[str, int]]) -> set[AttemptKey]:
    """Note where the log of each attempt is that has none and that ``worker_id`` has executed, but may end no more.

    What was shipped of it before stays, so that one can tell from where on it came late.
    """
    worker = tx.value(select(schema.workers.c.name).where(schema.workers.c.id == worker_id))
    own = executed_by(tx, logs.keys(), worker_id, worker) if worker else {}
    return {place for place in sorted(own) if _keep_late_log(tx, worker_id, place, *logs[place])}


def awaits_late_log(tx: Transaction, place: AttemptKey, worker_id: int, worker: str) -> bool:
    """Whether ``worker_id`` has executed an attempt that was given up as lost, or will be, and nobody has its log."""
    if place not in executed_by(tx, [place], worker_id, worker):
        return False
    table, where = _row_of(tx, place)
    found = tx.execute(select(table.c.log_key).where(where)).first()
    return found is not None and found.log_key is None


def _keep_late_log(tx: Transaction, worker_id: int, place: AttemptKey, key: str, size: int) -> bool:
    table, where = _row_of(tx, place, lock=True)
    row = {"log_key": key, "log_bytes": size, "late_from": shipped_bytes(tx, place)}
    return tx.execute(update(table).where(where, table.c.log_key.is_(None)).values(row)).rowcount == 1


def _row_of(tx: Transaction, place: AttemptKey, *, lock: bool = False) -> tuple[Any, Any]:
    """Where it is written how an attempt ended, or will be: on a row of its own, or on its run while it is the last."""
    attempts = schema.attempts
    of_run, of_attempt = runs.c.id == place[0], and_(attempts.c.run_id == place[0], attempts.c.attempt == place[1])
    queries = [select(runs.c.id).where(of_run), select(attempts.c.run_id).where(of_attempt)]
    _, earlier = (tx.value(query.with_for_update() if lock else query) for query in queries)
    if earlier is not None:
        return attempts, of_attempt
    at_it = or_(runs.c.lease_worker.is_not(None), runs.c.finished_at.is_not(None))
    return runs, and_(of_run, runs.c.attempt == place[1], at_it)


def shipped_bytes(tx: Transaction, place: AttemptKey) -> int:
    """How many bytes of an attempt's live log are kept."""
    table = schema.log_chunks
    mine = and_(table.c.run_id == place[0], table.c.attempt == place[1])
    return int(tx.value(select(func.coalesce(func.sum(func.length(table.c.data)), 0)).where(mine)) or 0)
