"""Queries for those who look at items: a page at a time, in the order of a key, so that each costs the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, and_, case, func, or_, select, update

from weft.db import schema
from weft.db.database import Transaction
from weft.items.collect_store import Place, dataset_of
from weft.items.model import AttemptStats, Dataset, Harvested, Look, Row, Thing
from weft.runs.model import NOT_KEPT, Outcome, RunSpec

items, looks, things, run_stats, datasets = (
    schema.items,
    schema.looks,
    schema.things,
    schema.run_stats,
    schema.datasets,
)

runs, attempts = schema.runs, schema.attempts

_decode = msgspec.json.decode

SMALL = 50_000
"""Data of so many characters is read together with that of others, larger one by one."""
MOST_TOGETHER = 16_000_000
"""Characters of data that one page reads; what is more waits for the next."""

_small = case((func.length(looks.c.data) <= SMALL, looks.c.data)).label("data")


def items_of(tx: Transaction, place: Place, after: int, limit: int) -> tuple[list[Row], bool]:
    """Items of one attempt with numbers above ``after``, and whether there may be more: of large ones come fewer."""
    query = (
        select(items.c.run_id, items.c.attempt, items.c.seq, items.c.at, items.c.thing_id, looks.c.number, _small)
        .join_from(items, looks, and_(looks.c.thing_id == items.c.thing_id, looks.c.number == items.c.look))
        .where(items.c.run_id == place[0], items.c.attempt == place[1], items.c.seq > after)
        .order_by(items.c.seq)
        .limit(limit)
    )
    return _rows(tx, tx.rows(query), limit)


def newest_looks(tx: Transaction, dataset_id: int, after: int, limit: int) -> tuple[list[Row], bool]:
    """What the things of a dataset with ids above ``after`` looked like last, and whether there may be more.

    Where looks begin is said too: PostgreSQL may walk through both side by side, and would do so from the first look.
    """
    thing_id = things.c.id.label("thing_id")
    query = (
        select(looks.c.run_id, looks.c.attempt, looks.c.seq, looks.c.at, thing_id, looks.c.number, _small)
        .join_from(things, looks, and_(looks.c.thing_id == things.c.id, looks.c.number == things.c.looks))
        .where(things.c.dataset_id == dataset_id, things.c.id > after, looks.c.thing_id > after)
        .order_by(things.c.dataset_id, things.c.id)
        .limit(limit)
    )
    return _rows(tx, tx.rows(query), limit)


def last_attempt(tx: Transaction, run_id: int) -> int | None:
    """The last attempt of a run that has told anything."""
    found: int | None = tx.value(select(func.max(run_stats.c.attempt)).where(run_stats.c.run_id == run_id))
    return found


def whole_attempts(tx: Transaction, run_id: int) -> frozenset[int]:
    """The attempts that together are what a run has yielded, each item once.

    That is the last one, and of a crawl that kept its place also those that were given back with it: the others
    began where they had stopped. Where a frontier keeps the place, all of them are.
    """
    last = last_attempt(tx, run_id)
    if last is None:
        return frozenset()
    run = tx.rows(select(runs.c.kind, runs.c.spec).where(runs.c.id == run_id))[0]
    spec = msgspec.json.decode(run.spec, type=RunSpec).spec
    if run.kind == "crawl" or spec.get("frontier"):
        return frozenset(range(1, last + 1))
    if last <= 1 or not spec.get("resumable"):
        return frozenset({last})
    ended = select(attempts.c.attempt, attempts.c.reason).where(
        attempts.c.run_id == run_id, attempts.c.attempt < last, attempts.c.outcome == Outcome.RELEASED
    )
    kept = {row.attempt for row in tx.rows(ended) if NOT_KEPT not in (row.reason or "")}
    return frozenset({last, *kept})


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


def counts_of(tx: Transaction, run_ids: Collection[int]) -> dict[int, int]:
    """How many items each of these runs has yielded, all its attempts together."""
    query = select(run_stats.c.run_id, func.sum(run_stats.c["items"]).label("items")).group_by(run_stats.c.run_id)
    return {row.run_id: int(row[1]) for row in tx.rows(query.where(run_stats.c.run_id.in_(sorted(run_ids))))}


def all_datasets(tx: Transaction, projects: Collection[str] | None) -> list[Dataset]:
    query = select(datasets).order_by(datasets.c.project, datasets.c.name)
    if projects is not None:
        query = query.where(datasets.c.project.in_(projects))
    return [dataset_of(row) for row in tx.rows(query)]


def set_dataset(tx: Transaction, dataset_id: int, values: Mapping[str, Any]) -> None:
    tx.execute(update(datasets).where(datasets.c.id == dataset_id).values(values))


def datasets_after(
    tx: Transaction, projects: Collection[str] | None, part: str, after: tuple[str, str], limit: int
) -> list[Dataset]:
    """Datasets whose name contains ``part``, by project and name, after one of them."""
    later = and_(datasets.c.project == after[0], datasets.c.name > after[1])
    query = select(datasets).where(or_(datasets.c.project > after[0], later))
    if projects is not None:
        query = query.where(datasets.c.project.in_(projects))
    if part:
        query = query.where(func.lower(datasets.c.name).contains(part.lower(), autoescape=True))
    return [dataset_of(row) for row in tx.rows(query.order_by(datasets.c.project, datasets.c.name).limit(limit))]


def harvests(tx: Transaction, dataset_id: int, below: Place, limit: int) -> list[Harvested]:
    """What attempts before ``below`` brought to a dataset, newest first."""
    earlier = or_(run_stats.c.run_id < below[0], and_(run_stats.c.run_id == below[0], run_stats.c.attempt < below[1]))
    names = ("run_id", "attempt", "items", "new_things", "changed_things", "refused", "invalid", "at")
    query = (
        select(*(run_stats.c[name] for name in names), run_stats.c.drift, runs.c.state)
        .join_from(run_stats, runs, runs.c.id == run_stats.c.run_id, isouter=True)
        .where(run_stats.c.dataset_id == dataset_id, run_stats.c.run_id <= below[0], earlier)
        .order_by(run_stats.c.dataset_id.desc(), run_stats.c.run_id.desc(), run_stats.c.attempt.desc())
        .limit(limit)
    )
    return [
        Harvested(state=row.state, drift=_marks(row.drift), **{name: getattr(row, name) for name in names})
        for row in tx.rows(query)
    ]


def _marks(drift: str | None) -> list[str]:
    return [] if drift is None else [mark["text"] for mark in _decode(drift)["marks"]]


def dataset_of_run(tx: Transaction, run_id: int) -> Dataset | None:
    """The dataset that the newest attempt of a run has filled."""
    query = select(datasets).join_from(run_stats, datasets, datasets.c.id == run_stats.c.dataset_id)
    query = query.where(run_stats.c.run_id == run_id).order_by(run_stats.c.attempt.desc()).limit(1)
    return next((dataset_of(row) for row in tx.rows(query)), None)


def count_things(tx: Transaction, dataset_id: int, most: int | None = None) -> int:
    """How many things are in a dataset; with ``most``, only so far."""
    ids = select(things.c.id).where(things.c.dataset_id == dataset_id)
    counted = ids if most is None else ids.limit(most)
    return int(tx.value(select(func.count()).select_from(counted.subquery())))


def count_items(tx: Transaction, dataset_id: int) -> int:
    """How many items went into a dataset, by what the attempts counted; the same as there are."""
    found = tx.value(select(func.sum(run_stats.c["items"])).where(run_stats.c.dataset_id == dataset_id))
    return int(found or 0)


def things_of(
    tx: Transaction, dataset_id: int, *, below: int, limit: int, run_id: int | None = None, changed: bool = False
) -> tuple[list[Thing], bool]:
    """Things with ids below ``below``, newest first, and whether there may be more: of large ones come fewer.

    With ``run_id`` only those that this run found new, or with ``changed`` otherwise than before.
    """
    query = _things().where(things.c.dataset_id == dataset_id)
    query = query.order_by(things.c.dataset_id.desc(), things.c.id.desc())
    if run_id is None:
        rows = tx.rows(query.where(things.c.id < below, looks.c.thing_id < below).limit(limit))
        is_full = len(rows) == limit
    else:
        ids = _shown_in(tx, run_id, below, limit, changed)
        rows = tx.rows(query.where(things.c.id.in_(ids))) if ids else ()
        is_full = bool(rows) and len(ids) == limit
    found = [_thing(row, text) for row, text in _whole(tx, rows)]
    return found, is_full or len(found) < len(rows)


def _shown_in(tx: Transaction, run_id: int, below: int, limit: int, changed: bool) -> Sequence[int]:
    query = select(looks.c.thing_id).where(looks.c.run_id == run_id, looks.c.thing_id < below)
    query = query.where(looks.c.number > 1 if changed else looks.c.number == 1)
    return [row[0] for row in tx.rows(query.distinct().order_by(looks.c.thing_id.desc()).limit(limit))]


def thing(tx: Transaction, dataset_id: int, thing_id: int) -> Thing | None:
    rows = tx.rows(_things().where(things.c.id == thing_id, things.c.dataset_id == dataset_id))
    return next((_thing(row, text) for row, text in _whole(tx, rows)), None)


def looks_of(tx: Transaction, thing_id: int, below: int, limit: int) -> list[Look]:
    """How a thing looked, newest first: its looks with numbers below ``below``."""
    columns = (looks.c.thing_id, looks.c.number, looks.c.at, looks.c.run_id, looks.c.attempt, looks.c.seq, _small)
    query = select(*columns).where(looks.c.thing_id == thing_id, looks.c.number < below)
    rows = tx.rows(query.order_by(looks.c.number.desc()).limit(limit))
    names = ("number", "at", "run_id", "attempt", "seq")
    return [Look(**{name: getattr(row, name) for name in names}, data=_decode(text)) for row, text in _whole(tx, rows)]


def _rows(tx: Transaction, rows: Sequence[Any], limit: int) -> tuple[list[Row], bool]:
    found = [
        Row(row.run_id, row.attempt, row.seq, row.at, row.thing_id, _decode(text)) for row, text in _whole(tx, rows)
    ]
    return found, len(rows) == limit or len(found) < len(rows)


def _whole(tx: Transaction, rows: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    """Rows with their data, until that is enough for one page; of ``rows``, at least the first."""
    size = 0
    for row in rows:
        text = row.data if row.data is not None else _data_of(tx, row.thing_id, row.number)
        yield row, text
        size += len(text)
        if size > MOST_TOGETHER:
            return


def _data_of(tx: Transaction, thing_id: int, number: int) -> str:
    same = and_(looks.c.thing_id == thing_id, looks.c.number == number)
    return str(tx.value(select(looks.c.data).where(same)))


def _place(rows: Sequence[Any]) -> Place | None:
    return (rows[0].run_id, rows[0].attempt) if rows else None


def _things() -> Select[Any]:
    return select(things, looks.c.thing_id, looks.c.number, _small).join_from(
        things, looks, and_(looks.c.thing_id == things.c.id, looks.c.number == things.c.looks)
    )


def _thing(row: Any, text: str) -> Thing:
    names = ("id", "key", "looks", "seen", "first_seen_at", "last_seen_at", "last_run_id")
    return Thing(**{name: getattr(row, name) for name in names}, data=_decode(text))
