"""The SQL of leases. Every write that follows a lease names its attempt; the row count decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, and_, bindparam, func, insert, literal_column, select
from sqlalchemy.sql.expression import delete

from weft.db import schema
from weft.db.bulk import insert_many, update_many
from weft.db.database import Transaction
from weft.runs.model import Retry, RunSpec, RunState

runs = schema.runs

_decode_spec = msgspec.json.Decoder(RunSpec).decode


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
    runs.c.pause_requested,
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
