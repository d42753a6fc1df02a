"""Queries for those who look at items: a page at a time, in the order of a key, so that each costs the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, and_, func, or_, select, update

from weft.db import schema
from weft.db.database import Transaction
from weft.items.collect_store import Place, dataset_of
from weft.items.model import AttemptStats, Dataset, Look, Row, Thing

items, looks, things, run_stats, datasets = (
    schema.items,
    schema.looks,
    schema.things,
    schema.run_stats,
    schema.datasets,
)

_decode = msgspec.json.decode


def items_of(tx: Transaction, place: Place, after: int, limit: int) -> list[Row]:
    """Items of one attempt with numbers above ``after``."""
    query = (
        select(items.c.run_id, items.c.attempt, items.c.seq, items.c.at, items.c.thing_id, looks.c.data)
        .join_from(items, looks, and_(looks.c.thing_id == items.c.thing_id, looks.c.number == items.c.look))
        .where(items.c.run_id == place[0], items.c.attempt == place[1], items.c.seq > after)
        .order_by(items.c.seq)
        .limit(limit)
    )
    return [_row(row) for row in tx.rows(query)]


def newest_looks(tx: Transaction, dataset_id: int, after: int, limit: int) -> list[Row]:
    """What the things of a dataset with ids above ``after`` looked like last."""
    query = (
        select(looks.c.run_id, looks.c.attempt, looks.c.seq, looks.c.at, things.c.id, looks.c.data)
        .join_from(things, looks, and_(looks.c.thing_id == things.c.id, looks.c.number == things.c.looks))
        .where(things.c.dataset_id == dataset_id, things.c.id > after)
        .order_by(things.c.dataset_id, things.c.id)
        .limit(limit)
    )
    return [_row(row) for row in tx.rows(query)]


def last_attempt(tx: Transaction, run_id: int) -> int | None:
    """The last attempt of a run that has told anything."""
    found: int | None = tx.value(select(func.max(run_stats.c.attempt)).where(run_stats.c.run_id == run_id))
    return found


def is_in_dataset(tx: Transaction, dataset_id: int, place: Place) -> bool:
    """Whether the items of an attempt are in a dataset."""
    same = and_(run_stats.c.run_id == place[0], run_stats.c.attempt == place[1])
    return bool(tx.value(select(run_stats.c.dataset_id).where(same)) == dataset_id)


def next_of_run(tx: Transaction, run_id: int, after: int) -> Place | None:
    """The attempt of a run that follows on attempt ``after``."""
    query = select(run_stats.c.run_id, run_stats.c.attempt)
    query = query.where(run_stats.c.run_id == run_id, run_stats.c.attempt > after).order_by(run_stats.c.attempt)
    return _place(tx.rows(query.limit(1)))


def next_of_dataset(tx: Transaction, dataset_id: int, after: Place) -> Place | None:
    """The attempt that follows on ``after`` among those with items in a dataset."""
    later = or_(run_stats.c.run_id > after[0], and_(run_stats.c.run_id == after[0], run_stats.c.attempt > after[1]))
    query = select(run_stats.c.run_id, run_stats.c.attempt).where(run_stats.c.dataset_id == dataset_id, later)
    query = query.where(run_stats.c.run_id >= after[0])
    return _place(tx.rows(query.order_by(run_stats.c.dataset_id, run_stats.c.run_id, run_stats.c.attempt).limit(1)))


def stats_of(tx: Transaction, run_id: int) -> list[AttemptStats]:
    """What each attempt of a run has yielded."""
    query = select(run_stats, datasets.c.name).outerjoin(datasets, datasets.c.id == run_stats.c.dataset_id)
    rows = tx.rows(query.where(run_stats.c.run_id == run_id).order_by(run_stats.c.attempt))
    names = ("run_id", "attempt", "items", "new_things", "changed_things", "refused", "invalid", "at")
    return [
        AttemptStats(
            dataset=row.name,
            stats=_decode(row.stats),
            drift=None if row.drift is None else _decode(row.drift),
            **{name: getattr(row, name) for name in names},
        )
        for row in rows
    ]


def all_datasets(tx: Transaction, projects: Collection[str] | None) -> list[Dataset]:
    query = select(datasets).order_by(datasets.c.project, datasets.c.name)
    if projects is not None:
        query = query.where(datasets.c.project.in_(projects))
    return [dataset_of(row) for row in tx.rows(query)]


def set_dataset(tx: Transaction, dataset_id: int, values: Mapping[str, Any]) -> None:
    tx.execute(update(datasets).where(datasets.c.id == dataset_id).values(values))


def count_things(tx: Transaction, dataset_id: int) -> int:
    return int(tx.value(select(func.count()).select_from(things).where(things.c.dataset_id == dataset_id)))


def count_items(tx: Transaction, dataset_id: int) -> int:
    """How many items went into a dataset, by what the attempts counted; the same as there are."""
    found = tx.value(select(func.sum(run_stats.c["items"])).where(run_stats.c.dataset_id == dataset_id))
    return int(found or 0)


def things_of(
    tx: Transaction, dataset_id: int, *, below: int, limit: int, run_id: int | None = None, changed: bool = False
) -> list[Thing]:
    """Things with ids below ``below``, newest first; only those that a run found new, or with ``changed`` otherwise."""
    query = _things().where(things.c.dataset_id == dataset_id)
    if run_id is None:
        query = query.where(things.c.id < below).order_by(things.c.dataset_id.desc(), things.c.id.desc())
        return [_thing(row) for row in tx.rows(query.limit(limit))]
    ids = _shown_in(tx, run_id, below, limit, changed)
    found = {row.id: _thing(row) for row in tx.rows(query.where(things.c.id.in_(ids)))} if ids else {}
    return [found[each] for each in ids if each in found]


def _shown_in(tx: Transaction, run_id: int, below: int, limit: int, changed: bool) -> Sequence[int]:
    query = select(looks.c.thing_id).where(looks.c.run_id == run_id, looks.c.thing_id < below)
    query = query.where(looks.c.number > 1 if changed else looks.c.number == 1)
    return [row[0] for row in tx.rows(query.distinct().order_by(looks.c.thing_id.desc()).limit(limit))]


def thing(tx: Transaction, dataset_id: int, thing_id: int) -> Thing | None:
    row = tx.execute(_things().where(things.c.id == thing_id, things.c.dataset_id == dataset_id)).first()
    return None if row is None else _thing(row)


def looks_of(tx: Transaction, thing_id: int, limit: int) -> list[Look]:
    """How a thing looked, newest first."""
    query = select(looks).where(looks.c.thing_id == thing_id).order_by(looks.c.number.desc()).limit(limit)
    names = ("number", "at", "run_id", "attempt", "seq")
    return [Look(**{name: getattr(row, name) for name in names}, data=_decode(row.data)) for row in tx.rows(query)]


def _row(row: Any) -> Row:
    run_id, attempt, seq, at, thing_id, data = row
    return Row(run_id, attempt, seq, at, thing_id, _decode(data))


def _place(rows: Sequence[Any]) -> Place | None:
    return (rows[0].run_id, rows[0].attempt) if rows else None


def _things() -> Select[Any]:
    return select(things, looks.c.data).join_from(
        things, looks, and_(looks.c.thing_id == things.c.id, looks.c.number == things.c.looks)
    )


def _thing(row: Any) -> Thing:
    names = ("id", "key", "looks", "seen", "first_seen_at", "last_seen_at", "last_run_id")
    return Thing(**{name: getattr(row, name) for name in names}, data=_decode(row.data))
