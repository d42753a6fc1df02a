"""The front door to datasets: what spiders have found so far, whatever run has found it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft import events
from weft.access.witness import Told, tell_all
from weft.clock import Clock, Moment
from weft.db.database import Database, Transaction
from weft.errors import Invalid, NotFound
from weft.events import Fact
from weft.items import collect_store, store
from weft.items.conditions import meets
from weft.items.fields import Fields, fields_of
from weft.items.finding import dataset_in
from weft.items.model import Condition, Dataset, Harvested, Look, Thing
from weft.items.shapes import check_schema

NEWEST = 2**63 - 1
PAGE = 1000
MOST_SCANNED = 10_000
"""How many things one page looks through at most; one that finds little says where to go on."""
MOST_LOOKS = 1000
NEWEST_LOOK = 2**31 - 1
MOST_COUNTED = 10_000
"""Things of one dataset that are counted where nobody wants to wait; in lists, 1,000."""
MOST_LISTED = 1000
SAMPLE = 1000
"""The newest things of a dataset, which fill rates and the inferred schema are made from."""
MOST_KEY_FIELDS = 20
LARGEST_SCHEMA = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThingFilter:
    """Which things of a dataset are wanted."""

    where: tuple[Condition, ...] = ()
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
        """Whether things are looked at and left out."""
        seen = (self.first_seen_after, self.first_seen_before, self.last_seen_after, self.last_seen_before)
        return bool(self.where) or any(each is not None for each in (*seen, self.unseen_in_run))

    def allows(self, thing: Thing) -> bool:
        times = (
            (self.first_seen_after, thing.first_seen_at),
            (thing.first_seen_at, self.first_seen_before),
            (self.last_seen_after, thing.last_seen_at),
            (thing.last_seen_at, self.last_seen_before),
        )
        in_time = all(early is None or late is None or early < late for early, late in times)
        is_gone = self.unseen_in_run is None or thing.last_run_id < self.unseen_in_run
        return in_time and is_gone and meets(thing.data, self.where)


@dataclass(frozen=True, slots=True)
class Things:
    """Some things of a dataset, newest first."""

    things: Sequence[Thing]
    next: int | None
    """Where the next part begins; None where there is no more."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is in a dataset; None where it was not counted to the end."""

    things: int | None
    items: int | None
    at_least: int | None = None
    """Things, where these were not counted to the end."""


class Datasets:
    """Looks at datasets, and says what thing an item is of."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def all(self, projects: Collection[str] | None = None) -> list[Dataset]:
        """Every dataset, or those of some projects, by name."""
        return await self._db.read(lambda tx: store.all_datasets(tx, projects))

    async def get(self, project: str, name: str) -> Dataset:
        return await self._db.read(lambda tx: dataset_in(tx, project, name))

    async def counts(self, project: str, name: str) -> Counts:
        """How many things are in it, and of how many items they are."""

        def work(tx: Transaction) -> Counts:
            dataset_id = dataset_in(tx, project, name).id
            return Counts(store.count_things(tx, dataset_id), store.count_items(tx, dataset_id))

        return await self._db.read(work)

    async def glance(self, project: str, name: str) -> tuple[Dataset, Counts, Harvested | None]:
        """A dataset with what came last, and how many things it has, counted as far as that takes no time."""
        return await self._db.read(lambda tx: _glance(tx, dataset_in(tx, project, name), MOST_COUNTED))

    async def glances(
        self,
        projects: Collection[str] | None = None,
        *,
        part: str = "",
        after: tuple[str, str] = ("", ""),
        limit: int = 50,
    ) -> list[tuple[Dataset, Counts, Harvested | None]]:
        """The same of many, by name: those whose name contains ``part``, after a project and a name."""

        def work(tx: Transaction) -> list[tuple[Dataset, Counts, Harvested | None]]:
            found = store.datasets_after(tx, projects, part, after, limit)
            return [_glance(tx, each, MOST_LISTED) for each in found]

        return await self._db.read(work)

    async def runs(
        self, project: str, name: str, *, below: tuple[int, int] = (NEWEST, 0), limit: int = 50
    ) -> list[Harvested]:
        """What attempts brought to a dataset, newest first."""
        return await self._db.read(lambda tx: store.harvests(tx, dataset_in(tx, project, name).id, below, limit))

    async def set(
        self, project: str, name: str, *, key_fields: Sequence[str] = (), schema: Mapping[str, Any] | None = None
    ) -> Dataset:
        """Set which fields say what thing an item is of, and what items are checked with; make it where there is none.

        Other key fields count for items that come from now on: things that are known keep what they are known by, so
        an item that would have been of one of them is of a new one once.
        """
        _check(name, key_fields, schema)
        values = {
            "key_fields": msgspec.json.encode(list(key_fields)).decode(),
            "schema": None if schema is None else msgspec.json.encode(schema).decode(),
        }

        def work(tx: Transaction) -> Dataset:
            at = self._clock()
            found = collect_store.dataset_named(tx, project, name)
            dataset_id = found.id if found else collect_store.add_dataset(tx, project, name, at)
            store.set_dataset(tx, dataset_id, values)
            kind = "dataset_changed" if found else "dataset_created"
            events.append(tx, [Fact(kind, project, data={"dataset": name})], at)
            after = dataset_in(tx, project, name)
            tell_all(tx, [Told(before=found and _told(found), after=_told(after))])
            return after

        return await self._db.transact(work)

    async def things(
        self, project: str, name: str, wanted: ThingFilter | None = None, *, below: int = NEWEST, limit: int = 50
    ) -> Things:
        """Things newest first. Where a filter is rarely met, there may be fewer than ``limit``, and more to come."""
        wanted = wanted or ThingFilter()

        def work(tx: Transaction) -> Things:
            return _things(tx, dataset_in(tx, project, name).id, wanted, below, limit)

        return await self._db.read(work)

    async def thing(
        self, project: str, name: str, thing_id: int, *, below: int = NEWEST_LOOK, limit: int = MOST_LOOKS
    ) -> tuple[Thing, list[Look]]:
        """One thing and how it looked, newest first: its looks with numbers below ``below``, at most the last 1,000."""

        def work(tx: Transaction) -> tuple[Thing, list[Look]]:
            found = store.thing(tx, dataset_in(tx, project, name).id, thing_id)
            if found is None:
                raise NotFound("thing", f"{thing_id} in dataset {name}")
            return found, store.looks_of(tx, thing_id, below, limit)

        return await self._db.read(work)

    async def fields(self, project: str, name: str, *, sample: int = SAMPLE) -> Fields:
        """Fill rates and types of the fields of the newest things, and the schema that these have in common."""

        def work(tx: Transaction) -> tuple[Dataset, list[Thing]]:
            dataset = dataset_in(tx, project, name)
            return dataset, store.things_of(tx, dataset.id, below=NEWEST, limit=sample)[0]

        dataset, things = await self._db.read(work)
        return fields_of([thing.data for thing in things], dataset.schema)


def _things(tx: Transaction, dataset_id: int, wanted: ThingFilter, below: int, limit: int) -> Things:
    run_id = wanted.new_in_run if wanted.new_in_run is not None else wanted.changed_in_run
    changed = wanted.new_in_run is None
    count = PAGE if wanted.is_picky else limit + 1
    found: list[Thing] = []
    for _ in range(0, MOST_SCANNED, PAGE):
        seen, more = store.things_of(tx, dataset_id, below=below, limit=count, run_id=run_id, changed=changed)
        for thing in seen:
            below = thing.id
            if wanted.allows(thing):
                found.append(thing)
                if len(found) > limit:
                    return Things(found[:limit], found[limit - 1].id)
        if not more:
            return Things(found, None)
        if len(seen) < count:  # they are large
            break
    return Things(found, below)


def _glance(tx: Transaction, dataset: Dataset, most: int) -> tuple[Dataset, Counts, Harvested | None]:
    count = store.count_things(tx, dataset.id, most + 1)
    counts = Counts(None if count > most else count, None, min(count, most))
    return dataset, counts, next(iter(store.harvests(tx, dataset.id, (NEWEST, 0), 1)), None)


def _told(dataset: Dataset) -> dict[str, Any]:
    """What the audit log is told of a dataset."""
    return {"key_fields": list(dataset.key_fields), "schema": dataset.schema}


def _check(name: str, key_fields: Sequence[str], schema: Mapping[str, Any] | None) -> None:
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise Invalid("dataset", name, "its name must be 1 to 100 characters that print")
    if len(key_fields) > MOST_KEY_FIELDS or len(set(key_fields)) != len(key_fields) or "" in key_fields:
        raise Invalid("key_fields", list(key_fields), f"it must be at most {MOST_KEY_FIELDS} names, each once")
    if schema is not None:
        check_schema(schema)
        if len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
            raise Invalid("schema", "too large", f"it must take at most {LARGEST_SCHEMA} bytes")
