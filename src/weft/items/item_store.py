"""The SQL of datasets, items, records, revisions and the statistics of attempts.

The collector locks rows in the order of their keys, so that collectors never wait in a circle. Whoever reads gets a
page at a time, in the order of a key, so that each costs the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, and_, bindparam, case, delete, func, insert, literal_column, or_, select, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import Row, insert_many, insert_missing, lock_among, reserve_ids, update_many
from weft.db.database import Transaction
from weft.items.model import (
    AttemptStats,
    Dataset,
    DatasetAttempt,
    DatasetRecord,
    Item,
    RecordRevision,
    Timeline,
    TimelineSample,
)
from weft.runs.lease_store import AttemptKey
from weft.runs.model import NOT_KEPT, RunOutcome, RunSpec, RunState

run_stats, datasets, records = schema.run_stats, schema.datasets, schema.records

RECORD_COLUMNS = ("id", "key", "digest", "revisions", "seen", "first_seen_at", "last_seen_at")

MOST_AT_ONCE = 500
"""Runs that one statement names."""

STILL_RUNNING = schema.runs.c.state == literal_column(f"'{RunState.RUNNING.value}'")


def lock_stats(tx: Transaction, places: Collection[AttemptKey]) -> dict[AttemptKey, Any]:
    """What is known of these attempts; nobody else counts their items until this transaction has ended."""
    found: dict[AttemptKey, Any] = {}
    in_order = sorted({run_id for run_id, _ in places})
    for start in range(0, len(in_order), MOST_AT_ONCE):
        # By run alone, with what other attempts it had: PostgreSQL would look through all for pairs of numbers.
        query = select(run_stats).where(run_stats.c.run_id.in_(in_order[start : start + MOST_AT_ONCE]))
        query = query.order_by(run_stats.c.run_id, run_stats.c.attempt).with_for_update()
        found |= {(row.run_id, row.attempt): row for row in tx.rows(query)}
    return {place: found[place] for place in places if place in found}


def add_stats(tx: Transaction, place: AttemptKey, dataset_id: int, at: Moment) -> None:
    """Begin to count the items of an attempt, unless somebody has."""
    counts = dict.fromkeys(("items", "new_records", "changed_records", "refused", "invalid", "told_at"), 0)
    row = {"run_id": place[0], "attempt": place[1], "dataset_id": dataset_id, "next_seq": 1, "stats": "{}", "at": at}
    insert_missing(tx, run_stats, row | counts | {"uncompared": place[0]})


def save_stats(tx: Transaction, rows: Sequence[Row]) -> None:
    """Those of attempts whose missing fields are counted have one column more."""
    for watched in (False, True):
        chosen = [row for row in rows if ("missing" in row) is watched]
        update_many(tx, run_stats, chosen, match=("run_id", "attempt"))


def update_run_counts(tx: Transaction, rows: Sequence[Row]) -> None:
    """Write how far attempts are on their runs, as long as these are running."""
    update_many(tx, schema.runs, rows, match=("id", "attempt"), extra=STILL_RUNNING)


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


def lock_records(tx: Transaction, dataset_id: int, keys: Collection[str]) -> Sequence[Any]:
    """Those records of ``keys`` that are known, with the columns that ``Seen`` begins with."""
    return lock_among(tx, records, RECORD_COLUMNS, sorted(keys), key="key", dataset_id=dataset_id)


def reserve_record_ids(tx: Transaction, count: int) -> Sequence[int]:
    return reserve_ids(tx, schema.record_ids, count)


def add_records(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """``rows`` are in the order of their keys."""
    insert_many(tx, records, rows)


def update_records(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    update_many(tx, records, rows, match=("id",))


def add_revisions(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    insert_many(tx, schema.revisions, rows)


def add_items(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    insert_many(tx, schema.items, rows)


items, revisions = schema.items, schema.revisions

runs, attempts = schema.runs, schema.attempts

_decode = msgspec.json.decode

SMALL_BYTES = 50_000
"""Data of so many characters is read together with that of others, larger one by one."""
MOST_PAGE_BYTES = 16_000_000
"""Characters of data that one page reads; what is more waits for the next."""

_small = case((func.length(revisions.c.data) <= SMALL_BYTES, revisions.c.data)).label("data")


def items_of(tx: Transaction, place: AttemptKey, after: int, limit: int) -> tuple[list[Item], bool]:
    """Items of one attempt with numbers above ``after``, and whether there may be more: of large ones come fewer."""
    query = (
        select(items.c.run_id, items.c.attempt, items.c.seq, items.c.at, items.c.record_id, revisions.c.number, _small)
        .join_from(
            items, revisions, and_(revisions.c.record_id == items.c.record_id, revisions.c.number == items.c.revision)
        )
        .where(items.c.run_id == place[0], items.c.attempt == place[1], items.c.seq > after)
        .order_by(items.c.seq)
        .limit(limit)
    )
    return _rows(tx, tx.rows(query), limit)


def newest_revisions(tx: Transaction, dataset_id: int, after: int, limit: int) -> tuple[list[Item], bool]:
    """What the records of a dataset with ids above ``after`` looked like last, and whether there may be more.

    Where revisions begin is said too: PostgreSQL may walk through both side by side, from the first revision on.
    """
    record_id = records.c.id.label("record_id")
    query = (
        select(
            revisions.c.run_id,
            revisions.c.attempt,
            revisions.c.seq,
            revisions.c.at,
            record_id,
            revisions.c.number,
            _small,
        )
        .join_from(
            records, revisions, and_(revisions.c.record_id == records.c.id, revisions.c.number == records.c.revisions)
        )
        .where(records.c.dataset_id == dataset_id, records.c.id > after, revisions.c.record_id > after)
        .order_by(records.c.dataset_id, records.c.id)
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
        attempts.c.run_id == run_id, attempts.c.attempt < last, attempts.c.outcome == RunOutcome.RELEASED
    )
    kept = {row.attempt for row in tx.rows(ended) if NOT_KEPT not in (row.reason or "")}
    return frozenset({last, *kept})


def is_in_dataset(tx: Transaction, dataset_id: int, place: AttemptKey) -> bool:
    """Whether the items of an attempt are in a dataset."""
    same = and_(run_stats.c.run_id == place[0], run_stats.c.attempt == place[1])
    return bool(tx.value(select(run_stats.c.dataset_id).where(same)) == dataset_id)


def next_attempt_of_run(tx: Transaction, run_id: int, after: int) -> AttemptKey | None:
    """The attempt of a run that follows on attempt ``after``."""
    query = select(run_stats.c.run_id, run_stats.c.attempt)
    query = query.where(run_stats.c.run_id == run_id, run_stats.c.attempt > after).order_by(run_stats.c.attempt)
    return _place(tx.rows(query.limit(1)))


def next_attempt_of_dataset(tx: Transaction, dataset_id: int, after: AttemptKey) -> AttemptKey | None:
    """The attempt that follows on ``after`` among those with items in a dataset."""
    later = or_(run_stats.c.run_id > after[0], and_(run_stats.c.run_id == after[0], run_stats.c.attempt > after[1]))
    query = select(run_stats.c.run_id, run_stats.c.attempt).where(run_stats.c.dataset_id == dataset_id, later)
    query = query.where(run_stats.c.run_id >= after[0])
    return _place(tx.rows(query.order_by(run_stats.c.dataset_id, run_stats.c.run_id, run_stats.c.attempt).limit(1)))


def stats_of(tx: Transaction, run_id: int) -> list[AttemptStats]:
    """What each attempt of a run has yielded."""
    query = select(run_stats, datasets.c.name).outerjoin(datasets, datasets.c.id == run_stats.c.dataset_id)
    rows = tx.rows(query.where(run_stats.c.run_id == run_id).order_by(run_stats.c.attempt))
    names = ("run_id", "attempt", "items", "new_records", "changed_records", "refused", "invalid", "at")
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


def dataset_attempts(tx: Transaction, dataset_id: int, below: AttemptKey, limit: int) -> list[DatasetAttempt]:
    """What attempts before ``below`` brought to a dataset, newest first."""
    earlier = or_(run_stats.c.run_id < below[0], and_(run_stats.c.run_id == below[0], run_stats.c.attempt < below[1]))
    names = ("run_id", "attempt", "items", "new_records", "changed_records", "refused", "invalid", "at")
    query = (
        select(*(run_stats.c[name] for name in names), run_stats.c.drift, runs.c.state)
        .join_from(run_stats, runs, runs.c.id == run_stats.c.run_id, isouter=True)
        .where(run_stats.c.dataset_id == dataset_id, run_stats.c.run_id <= below[0], earlier)
        .order_by(run_stats.c.dataset_id.desc(), run_stats.c.run_id.desc(), run_stats.c.attempt.desc())
        .limit(limit)
    )
    return [
        DatasetAttempt(state=row.state, drift=_drifted(row.drift), **{name: getattr(row, name) for name in names})
        for row in tx.rows(query)
    ]


def _drifted(drift: str | None) -> list[str]:
    return [] if drift is None else [mark["text"] for mark in _decode(drift)["marks"]]


def dataset_of_run(tx: Transaction, run_id: int) -> Dataset | None:
    """The dataset that the newest attempt of a run has filled."""
    query = select(datasets).join_from(run_stats, datasets, datasets.c.id == run_stats.c.dataset_id)
    query = query.where(run_stats.c.run_id == run_id).order_by(run_stats.c.attempt.desc()).limit(1)
    return next((dataset_of(row) for row in tx.rows(query)), None)


def count_records(tx: Transaction, dataset_id: int, most: int | None = None) -> int:
    """How many records are in a dataset; with ``most``, only so far."""
    ids = select(records.c.id).where(records.c.dataset_id == dataset_id)
    counted = ids if most is None else ids.limit(most)
    return int(tx.value(select(func.count()).select_from(counted.subquery())))


def count_items(tx: Transaction, dataset_id: int) -> int:
    """How many items went into a dataset, by what the attempts counted; the same as there are."""
    found = tx.value(select(func.sum(run_stats.c["items"])).where(run_stats.c.dataset_id == dataset_id))
    return int(found or 0)


def records_of(
    tx: Transaction, dataset_id: int, *, below: int, limit: int, run_id: int | None = None, changed: bool = False
) -> tuple[list[DatasetRecord], bool]:
    """Records with ids below ``below``, newest first, and whether there may be more: of large ones come fewer.

    With ``run_id`` only those that this run found new, or with ``changed`` otherwise than before.
    """
    query = _records().where(records.c.dataset_id == dataset_id)
    query = query.order_by(records.c.dataset_id.desc(), records.c.id.desc())
    if run_id is None:
        rows = tx.rows(query.where(records.c.id < below, revisions.c.record_id < below).limit(limit))
        is_full = len(rows) == limit
    else:
        ids = _revised_in(tx, run_id, below, limit, changed)
        rows = tx.rows(query.where(records.c.id.in_(ids))) if ids else ()
        is_full = bool(rows) and len(ids) == limit
    found = [_record(row, text) for row, text in _whole(tx, rows)]
    return found, is_full or len(found) < len(rows)


def _revised_in(tx: Transaction, run_id: int, below: int, limit: int, changed: bool) -> Sequence[int]:
    query = select(revisions.c.record_id).where(revisions.c.run_id == run_id, revisions.c.record_id < below)
    query = query.where(revisions.c.number > 1 if changed else revisions.c.number == 1)
    return [row[0] for row in tx.rows(query.distinct().order_by(revisions.c.record_id.desc()).limit(limit))]


def record(tx: Transaction, dataset_id: int, record_id: int) -> DatasetRecord | None:
    rows = tx.rows(_records().where(records.c.id == record_id, records.c.dataset_id == dataset_id))
    return next((_record(row, text) for row, text in _whole(tx, rows)), None)


def revisions_of(tx: Transaction, record_id: int, below: int, limit: int) -> list[RecordRevision]:
    """How a record looked, newest first: its revisions with numbers below ``below``."""
    columns = (
        revisions.c.record_id,
        revisions.c.number,
        revisions.c.at,
        revisions.c.run_id,
        revisions.c.attempt,
        revisions.c.seq,
        _small,
    )
    query = select(*columns).where(revisions.c.record_id == record_id, revisions.c.number < below)
    rows = tx.rows(query.order_by(revisions.c.number.desc()).limit(limit))
    names = ("number", "at", "run_id", "attempt", "seq")
    return [
        RecordRevision(**{name: getattr(row, name) for name in names}, data=_decode(text))
        for row, text in _whole(tx, rows)
    ]


def _rows(tx: Transaction, rows: Sequence[Any], limit: int) -> tuple[list[Item], bool]:
    found = [
        Item(row.run_id, row.attempt, row.seq, row.at, row.record_id, _decode(text)) for row, text in _whole(tx, rows)
    ]
    return found, len(rows) == limit or len(found) < len(rows)


def _whole(tx: Transaction, rows: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    """Rows with their data, until that is enough for one page; of ``rows``, at least the first."""
    size = 0
    for row in rows:
        text = row.data if row.data is not None else _data_of(tx, row.record_id, row.number)
        yield row, text
        size += len(text)
        if size > MOST_PAGE_BYTES:
            return


def _data_of(tx: Transaction, record_id: int, number: int) -> str:
    same = and_(revisions.c.record_id == record_id, revisions.c.number == number)
    return str(tx.value(select(revisions.c.data).where(same)))


def _place(rows: Sequence[Any]) -> AttemptKey | None:
    return (rows[0].run_id, rows[0].attempt) if rows else None


def _records() -> Select[Any]:
    return select(records, revisions.c.record_id, revisions.c.number, _small).join_from(
        records, revisions, and_(revisions.c.record_id == records.c.id, revisions.c.number == records.c.revisions)
    )


def _record(row: Any, text: str) -> DatasetRecord:
    names = ("id", "key", "revisions", "seen", "first_seen_at", "last_seen_at", "last_run_id")
    return DatasetRecord(**{name: getattr(row, name) for name in names}, data=_decode(text))


samples = schema.samples

REQUESTS, ERRORS, MEMORY = "downloader/request_count", "log_count/ERROR", "weft/memory_bytes"
LARGEST = 2**53
"""No count is larger; a spider may put anything into its statistics."""


def samples_taken(tx: Transaction, places: Collection[AttemptKey]) -> dict[AttemptKey, tuple[int, Moment, Moment]]:
    """For each attempt with samples how many they are, and when the first and the last were taken."""
    columns = (samples.c.run_id, samples.c.attempt, func.count(), func.min(samples.c.at), func.max(samples.c.at))
    query = select(*columns).where(samples.c.run_id.in_({run_id for run_id, _ in places}))
    rows = tx.rows(query.group_by(samples.c.run_id, samples.c.attempt))
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}


def add_samples(tx: Transaction, rows: Sequence[Row]) -> None:
    insert_many(tx, samples, rows)


def thin_samples(tx: Transaction, place: AttemptKey) -> None:
    """Remove every second sample of an attempt, but not the first."""
    mine = _attempt_is(place)
    moments = [row.at for row in tx.rows(select(samples.c.at).where(mine).order_by(samples.c.at))]
    tx.execute(delete(samples).where(mine, samples.c.at.in_(moments[1::2])))


def timeline(tx: Transaction, place: AttemptKey) -> Timeline | None:
    """An attempt's samples and how far it is now; None where it has told nothing yet."""
    same = and_(run_stats.c.run_id == place[0], run_stats.c.attempt == place[1])
    now = tx.execute(select(run_stats.c["items"], run_stats.c.stats, run_stats.c.at).where(same)).first()
    if now is None:
        return None
    rows = tx.rows(select(samples).where(_attempt_is(place)).order_by(samples.c.at))
    found = [TimelineSample(row.at, row._mapping["items"], row.requests, row.errors, row.memory) for row in rows]
    newest = sample_of(msgspec.json.decode(now.stats), now._mapping["items"], now.at)
    if not found or newest.at > found[-1].at:
        found.append(newest)
    first = select(items.c.at).where(items.c.run_id == place[0], items.c.attempt == place[1])
    return Timeline(place[1], tx.value(first.order_by(items.c.seq).limit(1)), found)


def sample_of(stats: dict[str, Any], count: int, at: Moment) -> TimelineSample:
    """What Scrapy's statistics say of a moment."""
    return TimelineSample(at, count, *(_number(stats.get(name)) for name in (REQUESTS, ERRORS, MEMORY)))


def _attempt_is(place: AttemptKey) -> Any:
    return and_(samples.c.run_id == place[0], samples.c.attempt == place[1])


def _number(value: object) -> int:
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return int(value) if is_one else 0  # type: ignore[call-overload]


def yields_by_attempt(tx: Transaction, run_ids: Sequence[int]) -> dict[int, dict[int, tuple[int, bool]]]:
    """For each run its attempts with the items that each has yielded, and whether the run is running."""
    found: dict[int, dict[int, tuple[int, bool]]] = {}
    for run_id, attempt, items, worker in tx.rows(_yields_query(), {"ids": list(run_ids)}) if run_ids else ():
        found.setdefault(run_id, {})[attempt] = (items, worker is not None)
    return found


@cache
def _yields_query() -> Select[Any]:
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c["items"], runs.c.lease_worker)
    query = select(*columns).join_from(run_stats, runs, runs.c.id == run_stats.c.run_id)
    return query.where(run_stats.c.run_id.in_(bindparam("ids", expanding=True)))


def newest_samples(tx: Transaction, run_id: int, attempt: int, limit: int) -> list[tuple[Moment, int]]:
    """The newest samples of an attempt, in their order: when, and how many items there were."""
    rows = tx.rows(_samples_query(), {"run": run_id, "attempt": attempt, "limit": limit})
    return [(at, items) for at, items in reversed(rows)]


@cache
def _samples_query() -> Select[Any]:
    mine = (samples.c.run_id == bindparam("run"), samples.c.attempt == bindparam("attempt"))
    newest = select(samples.c.at, samples.c["items"]).where(*mine).order_by(samples.c.at.desc())
    return newest.limit(bindparam("limit"))
