"""Items, things and datasets as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weft.clock import iso
from weft.documents.copying import Time, timed
from weft.items.datasets import Counts
from weft.items.fields import Fields
from weft.items.model import AttemptStats, Dataset, Harvested, Look, Row, Thing
from weft.items.shapes import problem_of


class ItemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One item, and where it came from."""

    run_id: int
    attempt: int
    seq: int
    """Its number in the attempt, from 1 on."""
    at: Time
    thing_id: int
    """What it was seen of."""
    data: dict[str, Any]
    problem: str | None = None
    """What about it is not as the dataset's schema says."""


class StatsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt has yielded so far, counted where it was stored."""

    run_id: int
    attempt: int
    dataset: str | None
    items: int
    new_things: int
    changed_things: int
    refused: int
    """Lines that are no item: not JSON, not an object, or too large."""
    invalid: int
    """Items that were stored though the dataset's schema says that they should not look so."""
    stats: dict[str, Any]
    """Scrapy's own, by its names."""
    drift: dict[str, Any] | None
    """What differs from the runs before it."""
    at: Time


class HarvestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt brought to its dataset."""

    run_id: int
    attempt: int
    state: str | None
    """Of the run; null where the run is gone."""
    items: int
    new_things: int
    changed_things: int
    refused: int
    invalid: int
    drift: list[str]
    """What differs from the runs before it, a sentence each."""
    at: Time
    """When it last brought anything."""


class DatasetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Where the items of a spider are kept, whatever run has yielded them."""

    project: str
    name: str
    key_fields: list[str]
    """Which fields say what thing an item is of; none: all of them."""
    schema: dict[str, Any] | None
    created_at: Time
    things: int | None = None
    """How many; null where that was not counted to the end."""
    items: int | None = None
    at_least: int | None = None
    """How many things were counted, where that was not to the end."""
    newest: HarvestDocument | None = None
    """What came last, where that was asked for."""


class LookDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a thing looked like from one item on."""

    number: int
    at: Time
    run_id: int
    attempt: int
    seq: int
    data: dict[str, Any]


class ThingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What items are seen of, as it looked last."""

    id: int
    key: str
    looks: int
    """How many it had."""
    seen: int
    """How many items it was seen in."""
    first_seen_at: Time
    last_seen_at: Time
    last_run_id: int
    data: dict[str, Any]
    problem: str | None = None
    """What about it is not as the dataset's schema says."""


class ThingHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A thing and how it looked, newest first."""

    thing: ThingDocument
    looks: list[LookDocument]


class FieldDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One field of the things of a dataset."""

    name: str
    present: int
    filled: int
    """Neither null nor an empty text, list or object."""
    fill_rate: float
    """From 0 to 1."""
    types: dict[str, int]


class FieldsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest things of a dataset look like."""

    sampled: int
    fields: list[FieldDocument]
    inferred: dict[str, Any]
    """The JSON Schema that all of them meet."""
    invalid: int
    """How many are not as the dataset's own schema says."""
    problems: list[str]


def item_document(row: Row, schema: Mapping[str, Any] | None = None) -> ItemDocument:
    return ItemDocument(
        run_id=row.run_id,
        attempt=row.attempt,
        seq=row.seq,
        at=iso(row.at) or "",
        thing_id=row.thing_id,
        data=row.data,
        problem=None if schema is None else problem_of(row.data, schema),
    )


def stats_document(stats: AttemptStats) -> StatsDocument:
    document: StatsDocument = _with_time(StatsDocument, stats)
    return document


def look_document(look: Look) -> LookDocument:
    document: LookDocument = _with_time(LookDocument, look)
    return document


def harvest_document(harvest: Harvested) -> HarvestDocument:
    document: HarvestDocument = _with_time(HarvestDocument, harvest)
    return document


def dataset_document(
    dataset: Dataset, counts: Counts | None = None, newest: Harvested | None = None
) -> DatasetDocument:
    return DatasetDocument(
        project=dataset.project,
        name=dataset.name,
        key_fields=list(dataset.key_fields),
        schema=None if dataset.schema is None else dict(dataset.schema),
        created_at=iso(dataset.created_at) or "",
        things=None if counts is None else counts.things,
        items=None if counts is None else counts.items,
        at_least=None if counts is None else counts.at_least,
        newest=None if newest is None else harvest_document(newest),
    )


def thing_document(thing: Thing, schema: Mapping[str, Any] | None = None) -> ThingDocument:
    told = timed({name: getattr(thing, name) for name in ThingDocument.__struct_fields__ if name != "problem"})
    return ThingDocument(**told, problem=None if schema is None else problem_of(thing.data, schema))


def thing_history(thing: Thing, looks: list[Look], schema: Mapping[str, Any] | None = None) -> ThingHistory:
    return ThingHistory(thing=thing_document(thing, schema), looks=[look_document(each) for each in looks])


def fields_document(found: Fields) -> FieldsDocument:
    return FieldsDocument(
        sampled=found.sampled,
        fields=[
            FieldDocument(name=name, fill_rate=round(field["filled"] / found.sampled, 4), **field)
            for name, field in found.fields.items()
        ],
        inferred=dict(found.inferred),
        invalid=found.invalid,
        problems=list(found.problems),
    )


def _with_time(kind: Any, value: Any) -> Any:
    return kind(**{name: getattr(value, name) for name in kind.__struct_fields__} | {"at": iso(value.at)})
