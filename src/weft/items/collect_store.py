"""Queries of the collector. Rows are locked in the order of their keys, so that collectors never wait in a circle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import insert, select

from weft.clock import Moment
from weft.db import schema
from weft.db.among import lock_among
from weft.db.bulk import Row, insert_many, insert_missing, reserve_ids, update_many
from weft.db.database import Transaction
from weft.items.model import Dataset

run_stats, datasets, things = schema.run_stats, schema.datasets, schema.things

SEEN = ("id", "key", "digest", "looks", "seen", "first_seen_at", "last_seen_at")

MOST_AT_ONCE = 500
"""Runs that one statement names."""

Place = tuple[int, int]
"""A run and an attempt of it."""


def executed_by(tx: Transaction, places: Collection[Place], worker_id: int, worker: str) -> dict[Place, Any]:
    """Those attempts that ``worker_id`` holds or has surely executed under an earlier id, with their run."""
    runs, attempts = schema.runs, schema.attempts
    ids = {run_id for run_id, _ in places}
    wanted = select(runs.c.id, runs.c.project, runs.c.task, runs.c.task_id, runs.c.kind, runs.c.spec, runs.c.attempt)
    wanted = wanted.add_columns(runs.c.lease_worker, runs.c.worker, runs.c.started_at).where(runs.c.id.in_(ids))
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


def lock_stats(tx: Transaction, places: Collection[Place]) -> dict[Place, Any]:
    """What is known of these attempts; nobody else counts their items until this transaction has ended."""
    found: dict[Place, Any] = {}
    in_order = sorted({run_id for run_id, _ in places})
    for start in range(0, len(in_order), MOST_AT_ONCE):
        # By run alone, with what other attempts it had: PostgreSQL would look through all for pairs of numbers.
        query = select(run_stats).where(run_stats.c.run_id.in_(in_order[start : start + MOST_AT_ONCE]))
        query = query.order_by(run_stats.c.run_id, run_stats.c.attempt).with_for_update()
        found |= {(row.run_id, row.attempt): row for row in tx.rows(query)}
    return {place: found[place] for place in places if place in found}


def begin_stats(tx: Transaction, place: Place, dataset_id: int, at: Moment) -> None:
    """Begin to count the items of an attempt, unless somebody has."""
    counts = dict.fromkeys(("items", "new_things", "changed_things", "refused", "invalid", "told_at"), 0)
    row = {"run_id": place[0], "attempt": place[1], "dataset_id": dataset_id, "next_seq": 1, "stats": "{}", "at": at}
    insert_missing(tx, run_stats, row | counts | {"uncompared": place[0]})


def save_stats(tx: Transaction, rows: Sequence[Row]) -> None:
    update_many(tx, run_stats, rows, match=("run_id", "attempt"))


def dataset_named(tx: Transaction, project: str, name: str) -> Dataset | None:
    row = tx.execute(select(datasets).where(datasets.c.project == project, datasets.c.name == name)).first()
    return None if row is None else dataset_of(row)


def datasets_by_id(tx: Transaction, ids: Collection[int]) -> dict[int, Dataset]:
    return {row.id: dataset_of(row) for row in tx.rows(select(datasets).where(datasets.c.id.in_(ids)))} if ids else {}


def add_dataset(tx: Transaction, project: str, name: str, at: Moment, key_fields: Sequence[str] = ()) -> int:
    """A lost race for the name makes the transaction run again."""
    keyed = msgspec.json.encode(list(key_fields)).decode()
    row = {"project": project, "name": name, "key_fields": keyed, "created_at": at}
    made: Any = tx.execute(insert(datasets).values(row)).inserted_primary_key
    return int(made[0])


def dataset_of(row: Any) -> Dataset:
    return Dataset(
        id=row.id,
        project=row.project,
        name=row.name,
        key_fields=tuple(msgspec.json.decode(row.key_fields)),
        schema=None if row.schema is None else msgspec.json.decode(row.schema),
        created_at=row.created_at,
    )


def lock_things(tx: Transaction, dataset_id: int, keys: Collection[str]) -> Sequence[Any]:
    """Those things of ``keys`` that are known, with the columns that ``Seen`` begins with."""
    return lock_among(tx, things, SEEN, sorted(keys), key="key", dataset_id=dataset_id)


def thing_ids(tx: Transaction, count: int) -> Sequence[int]:
    return reserve_ids(tx, schema.thing_ids, count)


def add_things(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """``rows`` are in the order of their keys."""
    insert_many(tx, things, rows)


def change_things(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    update_many(tx, things, rows, match=("id",))


def add_looks(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    insert_many(tx, schema.looks, rows)


def add_items(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    insert_many(tx, schema.items, rows)
