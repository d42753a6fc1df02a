"""The SQL of destinations, and of how far each attempt has been delivered to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, and_, delete, func, insert, select, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction
from weft.items.destination import DeliveryBatch, Destination
from weft.items.exporters import ExportFormat
from weft.runs.model import ENDED

destinations, marks, datasets = schema.destinations, schema.destination_marks, schema.datasets
stats, items, revisions, runs = schema.run_stats, schema.items, schema.revisions, schema.runs
records = schema.records

MOST_ATTEMPTS = 1000
"""Of a dataset, in which items that wait are counted."""


def dataset_id(tx: Transaction, project: str, name: str) -> int | None:
    same = (datasets.c.project == project) & (datasets.c.name == name)
    found = tx.value(select(datasets.c.id).where(same))
    return None if found is None else int(found)


def add(tx: Transaction, values: Mapping[str, Any]) -> int:
    fields = msgspec.json.encode(values["fields"]).decode()
    key = tx.execute(insert(destinations).values({**values, "fields": fields})).inserted_primary_key
    if key is None:
        raise AssertionError("an inserted row has an id")
    return int(key[0])


def remove(tx: Transaction, destination_id: int) -> None:
    tx.execute(delete(marks).where(marks.c.destination_id == destination_id))
    tx.execute(delete(destinations).where(destinations.c.id == destination_id))


def of_dataset(tx: Transaction, of: int) -> list[Destination]:
    return _found(tx, _select().where(destinations.c.dataset_id == of))


def get(tx: Transaction, destination_id: int) -> Destination | None:
    found = _found(tx, _select().where(destinations.c.id == destination_id))
    return found[0] if found else None


def due(tx: Transaction, at: Moment) -> list[Destination]:
    return _found(tx, _select().where(destinations.c.next_at <= at))


def set_back(tx: Transaction, since: Moment, by: Moment) -> None:
    """Let waits that end after ``since`` end earlier by so much."""
    column = destinations.c.next_at
    tx.execute(update(destinations).where(column > since).values(next_at=column - by))


def has_destinations(tx: Transaction) -> bool:
    return tx.value(select(destinations.c.id).limit(1)) is not None


def waiting(tx: Transaction, destination: Destination) -> int:
    """How many items it has still to be sent; those that were refused when they came are counted too.

    Only the newest attempts are looked at: the number is for people, and they do not want to wait for it.
    """
    newest = (stats.c.dataset_id.desc(), stats.c.run_id.desc(), stats.c.attempt.desc())
    left = (stats.c.next_seq - 1 - func.coalesce(marks.c.delivered, 0)).label("waits")
    joined = select(left).select_from(stats.outerjoin(marks, _marked(destination.id)))
    mine = joined.where(stats.c.dataset_id == destination.dataset_id).order_by(*newest).limit(MOST_ATTEMPTS)
    return int(tx.value(select(func.sum(mine.subquery().c.waits))) or 0)


def pending(tx: Transaction, destination: Destination, *, enough: int, since: Moment, limit: int) -> list[Any]:
    """The attempts that have yielded more than was delivered, oldest first.

    Those that go on are left out until ``enough`` items wait, or some have waited ``since`` then.

    An attempt's items are stored in their order, and ``next_seq`` moves with them: what is before it is there.
    """
    ended = (runs.c.id.is_(None)) | runs.c.state.in_(ENDED) | (runs.c.attempt > stats.c.attempt)
    count = stats.c.next_seq - 1 - func.coalesce(marks.c.delivered, 0)
    patient = (marks.c.since > since) & (count < enough) & (marks.c.sending == marks.c.delivered)
    query = (
        select(stats.c.run_id, stats.c.attempt, stats.c.next_seq, ended.label("ended"))
        .add_columns(marks.c.delivered, marks.c.sending, marks.c.since)
        .select_from(stats.outerjoin(marks, _marked(destination.id)).outerjoin(runs, runs.c.id == stats.c.run_id))
        .where(stats.c.dataset_id == destination.dataset_id)
        .where(count > 0, ended | marks.c.since.is_(None) | ~patient)
    )
    return list(tx.rows(query.order_by(stats.c.run_id, stats.c.attempt).limit(limit)))


def start_waiting(tx: Transaction, destination_id: int, run_id: int, attempt: int, at: Moment) -> None:
    """Remember when items of an attempt were first seen to wait."""
    of = {"destination_id": destination_id, "run_id": run_id, "attempt": attempt}
    insert_missing(tx, marks, of | {"delivered": 0, "sending": 0, "since": at})


def send(tx: Transaction, destination_id: int, stretch: DeliveryBatch) -> bool:
    """Fix which items go next, before they do; False where somebody was first."""
    free = _mark(destination_id, stretch) & (marks.c.sending == marks.c.delivered)
    return tx.execute(update(marks).where(free).values(sending=stretch.last)).rowcount == 1


def confirm(tx: Transaction, destination_id: int, stretch: DeliveryBatch, count: int, at: Moment) -> bool:
    """Write down that the ``count`` items of a stretch have arrived; False where somebody else had done so."""
    same = _mark(destination_id, stretch) & (marks.c.sending == stretch.last)
    if tx.execute(update(marks).where(same).values(delivered=stretch.last, since=at)).rowcount != 1:
        return False
    values = {"delivered": destinations.c.delivered + count, "delivered_at": at, "problem": None, "failures": 0}
    tx.execute(update(destinations).where(destinations.c.id == destination_id).values(values))
    return True


def fail(tx: Transaction, destination: Destination, problem: str, next_at: Moment) -> None:
    values = {"problem": problem, "failures": destination.failures + 1, "next_at": next_at}
    tx.execute(update(destinations).where(destinations.c.id == destination.id).values(values))


def retry(tx: Transaction, destination_id: int, at: Moment) -> None:
    """Make it due, as if it had never failed."""
    values = {"problem": None, "failures": 0, "next_at": at}
    tx.execute(update(destinations).where(destinations.c.id == destination_id).values(values))


def sizes(tx: Transaction, run_id: int, attempt: int, first: int, limit: int) -> list[Any]:
    """The number and the size of an attempt's items from ``first`` on."""
    query = _items(run_id, attempt).with_only_columns(items.c.seq, func.length(revisions.c.data))
    return list(tx.rows(query.where(items.c.seq >= first).order_by(items.c.seq).limit(limit)))


def rows(tx: Transaction, stretch: DeliveryBatch) -> list[Any]:
    """The items of a stretch, each with the key and the revision of its record; deleted ones are missing."""
    within = items.c.seq.between(stretch.first, stretch.last)
    query = _items(stretch.run_id, stretch.attempt).add_columns(items.c.revision, records.c.key)
    query = query.join(records, records.c.id == items.c.record_id)
    return list(tx.rows(query.where(within).order_by(items.c.seq)))


def _items(run_id: int, attempt: int) -> Select[Any]:
    revision = (revisions.c.record_id == items.c.record_id) & (revisions.c.number == items.c.revision)
    columns = (items.c.run_id, items.c.attempt, items.c.seq, items.c.record_id, items.c.at, revisions.c.data)
    return (
        select(*columns)
        .select_from(items.join(revisions, revision))
        .where(items.c.run_id == run_id, items.c.attempt == attempt)
    )


def _select() -> Select[Any]:
    joined = destinations.join(datasets, datasets.c.id == destinations.c.dataset_id)
    columns = (destinations, datasets.c.project, datasets.c.name.label("dataset"))
    return select(*columns).select_from(joined).order_by(destinations.c.id)


def _found(tx: Transaction, query: Select[Any]) -> list[Destination]:
    return [_destination(dict(row._mapping)) for row in tx.rows(query)]


def _destination(row: dict[str, Any]) -> Destination:
    fields = tuple(msgspec.json.decode(row.pop("fields")))
    return Destination(**(row | {"format": ExportFormat(row["format"]), "fields": fields}))


def _marked(destination_id: int) -> ColumnElement[bool]:
    same = (marks.c.run_id == stats.c.run_id) & (marks.c.attempt == stats.c.attempt)
    return and_(marks.c.destination_id == destination_id, same)


def _mark(destination_id: int, stretch: DeliveryBatch) -> ColumnElement[bool]:
    """The mark of an attempt, as long as it stands right before the stretch."""
    same = (marks.c.run_id == stretch.run_id) & (marks.c.attempt == stretch.attempt)
    return and_(marks.c.destination_id == destination_id, same, marks.c.delivered == stretch.first - 1)
