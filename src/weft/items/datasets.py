"""The front door to datasets: what spiders have found so far, whatever run has found it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft import events
from weft.access.audit import AuditedChange, record_changes
from weft.clock import Clock, Moment
from weft.db.database import Database, Transaction
from weft.errors import NOT_SHOWN, Invalid, NotFound
from weft.events import Fact
from weft.items import item_store
from weft.items.model import Dataset, DatasetAttempt, DatasetRecord, FieldFilter, RecordRevision, matches
from weft.items.schemas import FieldSummary, check_schema, summarize_fields

MOST_NAMED = 20


def dataset_in(tx: Transaction, project: str, name: str) -> Dataset:
    found = item_store.dataset_named(tx, project, name)
    if found is None:
        there = [each.name for each in item_store.all_datasets(tx, {project})]
        raise NotFound("dataset", f"{name} in project {project}; {_listed(there)}")
    return found


def _listed(names: list[str]) -> str:
    if not names:
        return "it has none yet"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"it has {', '.join(names[:MOST_NAMED])}{more}"


NEWEST = 2**63 - 1
PAGE = 1000
MOST_SCANNED = 10_000
"""How many records one page looks through at most; one that finds little says where to go on."""
MOST_REVISIONS = 1000
NEWEST_REVISION = 2**31 - 1
MOST_COUNTED = 10_000
"""Records of one dataset that are counted where nobody wants to wait; in lists, 1,000."""
MOST_LISTED = 1000
SAMPLE = 1000
"""The newest records of a dataset, which fill rates and the inferred schema are made from."""
MOST_KEY_FIELDS = 20
LARGEST_SCHEMA = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Which records of a dataset are wanted."""

    where: tuple[FieldFilter, ...] = ()
    first_seen_after: Moment | None = None
    first_seen_before: Moment | None = None
    last_seen_after: Moment | None = None
    last_seen_before: Moment | None = None
    new_in_run: int | None = None
    changed_in_run: int | None = None
    unseen_in_run: int | None = None
    """Last seen before this run."""

    @property
    def is_picky(self) -> bool:
        """Whether records are looked at and left out."""
        seen = (self.first_seen_after, self.first_seen_before, self.last_seen_after, self.last_seen_before)
        return bool(self.where) or any(each is not None for each in (*seen, self.unseen_in_run))

    def allows(self, record: DatasetRecord) -> bool:
        times = (
            (self.first_seen_after, record.first_seen_at),
            (record.first_seen_at, self.first_seen_before),
            (self.last_seen_after, record.last_seen_at),
            (record.last_seen_at, self.last_seen_before),
        )
        in_time = all(early is None or late is None or early < late for early, late in times)
        is_gone = self.unseen_in_run is None or record.last_run_id < self.unseen_in_run
        return in_time and is_gone and matches(record.data, self.where)


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some records of a dataset, newest first."""

    records: Sequence[DatasetRecord]
    next: int | None
    """Where the next part begins; None where there is no more."""


@dataclass(frozen=True, slots=True)
class DatasetCounts:
    """How much there is in a dataset; None where it was not counted to the end."""

    records: int | None
    items: int | None
    at_least: int | None = None
    """Records, where these were not counted to the end."""


class Datasets:
    """Looks at datasets, and says which record an item belongs to."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def all(self, projects: Collection[str] | None = None) -> list[Dataset]:
        """Every dataset, or those of some projects, by name."""
        return await self._db.read(lambda tx: item_store.all_datasets(tx, projects))

    async def get(self, project: str, name: str) -> Dataset:
        return await self._db.read(lambda tx: dataset_in(tx, project, name))

    async def counts(self, project: str, name: str) -> DatasetCounts:
        """How many records are in it, and of how many items they are."""

        def work(tx: Transaction) -> DatasetCounts:
            dataset_id = dataset_in(tx, project, name).id
            return DatasetCounts(item_store.count_records(tx, dataset_id), item_store.count_items(tx, dataset_id))

        return await self._db.read(work)

    async def glance(self, project: str, name: str) -> tuple[Dataset, DatasetCounts, DatasetAttempt | None]:
        """A dataset with what came last, and how many records it has, counted as far as that takes no time."""
        return await self._db.read(lambda tx: _glance(tx, dataset_in(tx, project, name), MOST_COUNTED))

    async def glances(
        self,
        projects: Collection[str] | None = None,
        *,
        part: str = "",
        after: tuple[str, str] = ("", ""),
        limit: int = 50,
    ) -> list[tuple[Dataset, DatasetCounts, DatasetAttempt | None]]:
        """The same of many, by name: those whose name contains ``part``, after a project and a name."""

        def work(tx: Transaction) -> list[tuple[Dataset, DatasetCounts, DatasetAttempt | None]]:
            found = item_store.datasets_after(tx, projects, part, after, limit)
            return [_glance(tx, each, MOST_LISTED) for each in found]

        return await self._db.read(work)

    async def runs(
        self, project: str, name: str, *, below: tuple[int, int] = (NEWEST, 0), limit: int = 50
    ) -> list[DatasetAttempt]:
        """What attempts brought to a dataset, newest first."""
        return await self._db.read(
            lambda tx: item_store.dataset_attempts(tx, dataset_in(tx, project, name).id, below, limit)
        )

    async def set(
        self, project: str, name: str, *, key_fields: Sequence[str] = (), schema: Mapping[str, Any] | None = None
    ) -> Dataset:
        """Set the key fields and the schema that items are checked with; create it where there is none.

        Other key fields count for items that come from now on: records that are known keep what they are known by, so
        an item that would have been of one of them is of a new one once.
        """
        _check_settings(name, key_fields, schema)
        values = {
            "key_fields": msgspec.json.encode(list(key_fields)).decode(),
            "schema": None if schema is None else msgspec.json.encode(schema).decode(),
        }

        def work(tx: Transaction) -> Dataset:
            at = self._clock()
            found = item_store.dataset_named(tx, project, name)
            dataset_id = found.id if found else item_store.add_dataset(tx, project, name, at)
            item_store.set_dataset(tx, dataset_id, values)
            kind = "dataset_changed" if found else "dataset_created"
            events.append(tx, [Fact(kind, project, data={"dataset": name})], at)
            after = dataset_in(tx, project, name)
            record_changes(tx, [AuditedChange(before=found and _audited(found), after=_audited(after))])
            return after

        return await self._db.transact(work)

    async def records(
        self, project: str, name: str, wanted: RecordFilter | None = None, *, below: int = NEWEST, limit: int = 50
    ) -> RecordPage:
        """Records newest first. Where a filter is rarely met, there may be fewer than ``limit``, and more to come."""
        wanted = wanted or RecordFilter()

        def work(tx: Transaction) -> RecordPage:
            return _record_page(tx, dataset_in(tx, project, name).id, wanted, below, limit)

        return await self._db.read(work)

    async def record(
        self, project: str, name: str, record_id: int, *, below: int = NEWEST_REVISION, limit: int = MOST_REVISIONS
    ) -> tuple[DatasetRecord, list[RecordRevision]]:
        """One record and its revisions with numbers below ``below``, newest first, at most the last 1,000."""

        def work(tx: Transaction) -> tuple[DatasetRecord, list[RecordRevision]]:
            found = item_store.record(tx, dataset_in(tx, project, name).id, record_id)
            if found is None:
                raise NotFound("record", f"{record_id} in dataset {name}")
            return found, item_store.revisions_of(tx, record_id, below, limit)

        return await self._db.read(work)

    async def fields(self, project: str, name: str, *, sample: int = SAMPLE) -> FieldSummary:
        """Fill rates and types of the fields of the newest records, and the schema that these have in common."""

        def work(tx: Transaction) -> tuple[Dataset, list[DatasetRecord]]:
            dataset = dataset_in(tx, project, name)
            return dataset, item_store.records_of(tx, dataset.id, below=NEWEST, limit=sample)[0]

        dataset, records = await self._db.read(work)
        return summarize_fields([record.data for record in records], dataset.schema)


def _record_page(tx: Transaction, dataset_id: int, wanted: RecordFilter, below: int, limit: int) -> RecordPage:
    run_id = wanted.new_in_run if wanted.new_in_run is not None else wanted.changed_in_run
    changed = wanted.new_in_run is None
    count = PAGE if wanted.is_picky else limit + 1
    found: list[DatasetRecord] = []
    for _ in range(0, MOST_SCANNED, PAGE):
        seen, more = item_store.records_of(tx, dataset_id, below=below, limit=count, run_id=run_id, changed=changed)
        for record in seen:
            below = record.id
            if wanted.allows(record):
                found.append(record)
                if len(found) > limit:
                    return RecordPage(found[:limit], found[limit - 1].id)
        if not more:
            return RecordPage(found, None)
        if len(seen) < count:  # they are large
            break
    return RecordPage(found, below)


def _glance(tx: Transaction, dataset: Dataset, most: int) -> tuple[Dataset, DatasetCounts, DatasetAttempt | None]:
    count = item_store.count_records(tx, dataset.id, most + 1)
    counts = DatasetCounts(None if count > most else count, None, min(count, most))
    return dataset, counts, next(iter(item_store.dataset_attempts(tx, dataset.id, (NEWEST, 0), 1)), None)


def _audited(dataset: Dataset) -> dict[str, Any]:
    """What the audit log is told of a dataset."""
    return {"key_fields": list(dataset.key_fields), "schema": dataset.schema}


def _check_settings(name: str, key_fields: Sequence[str], schema: Mapping[str, Any] | None) -> None:
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise Invalid("dataset", name, "its name must be 1 to 100 characters that print")
    if len(key_fields) > MOST_KEY_FIELDS or len(set(key_fields)) != len(key_fields) or "" in key_fields:
        raise Invalid("key_fields", list(key_fields), f"it must be at most {MOST_KEY_FIELDS} names, each once")
    if schema is not None:
        check_schema(schema)
        if len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
            raise Invalid("schema", NOT_SHOWN, f"it must take at most {LARGEST_SCHEMA} bytes")
