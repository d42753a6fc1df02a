"""Datasets: what spiders have found so far, whatever run has found it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.items_asked import After, Contains, Limit, Search, Where, conditions, cursor_of, item_page
from weft.api.operation import Operations
from weft.api.paging import Page, cursor, names, numbers, page
from weft.api.v1.items import FIELDS, ITEM, Sample
from weft.clock import moment
from weft.documents.items import (
    DatasetDocument,
    FieldsDocument,
    HarvestDocument,
    ItemDocument,
    ThingDocument,
    ThingHistory,
    dataset_document,
    fields_document,
    harvest_document,
    thing_document,
    thing_history,
)
from weft.items.datasets import MOST_LOOKS, NEWEST, NEWEST_LOOK, ThingFilter
from weft.items.model import Selection

operations = Operations("datasets")

ONE = "/datasets/{project}/{name}"
DATASET = {
    "project": "shop",
    "name": "prices",
    "key_fields": ["url"],
    "schema": {"type": "object", "required": ["url", "price"], "properties": {"price": {"type": "number"}}},
    "created_at": "2026-12-01T02:00:04.100Z",
    "things": 120,
    "items": 3600,
    "at_least": None,
    "newest": None,
}
THING = {
    "id": 12,
    "key": "0f343b0931126a20f133d67c2b018a3b",
    "looks": 2,
    "seen": 30,
    "first_seen_at": "2026-11-01T02:00:04.100Z",
    "last_seen_at": "2026-12-01T02:00:04.100Z",
    "last_run_id": 7,
    "data": {"url": "https://shop.example/1", "price": 12.5},
}
LOOK = {
    "number": 2,
    "at": "2026-12-01T02:00:04.100Z",
    "run_id": 7,
    "attempt": 1,
    "seq": 1,
    "data": {"url": "https://shop.example/1", "price": 12.5},
}
HARVEST = {
    "run_id": 7,
    "attempt": 1,
    "state": "succeeded",
    "items": 120,
    "new_things": 3,
    "changed_things": 9,
    "refused": 0,
    "invalid": 0,
    "drift": [],
    "at": "2026-12-01T02:00:04.100Z",
}


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Which datasets."""

    project: str | None = None
    name: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """What its name must contain."""
    newest: bool = False
    """Tell what came last to each, count its things up to 1,000, and answer in pages."""
    after: After | None = None
    limit: Limit = 50


@operations.get(
    "/datasets",
    needs=Role.VIEWER,
    query=Listed,
    answer=Page[DatasetDocument],
    example={"items": [DATASET | {"things": None, "items": None}], "next": None},
)
async def list_(call: Call) -> Page[DatasetDocument]:
    """List the datasets that there are, by project and name."""
    asked: Listed = call.query
    visible, after = call.visible(asked.project), names(asked.after, 2) or ("", "")
    if not asked.newest:
        found = await call.app.datasets.all(visible)
        return Page(items=[dataset_document(each) for each in found if asked.name.lower() in each.name.lower()])
    seen = await call.app.datasets.glances(visible, part=asked.name, after=(after[0], after[1]), limit=asked.limit + 1)
    return Page.of(
        [dataset_document(*each) for each in seen], asked.limit, place=lambda each: (each.project, each.name)
    )


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What of a dataset."""

    count: bool = True
    """Count all that is in it, which takes the longer the more that is; else things up to 10,000, and no items."""


@operations.get(ONE, needs=Role.VIEWER, query=Shown, answer=DatasetDocument, example=DATASET)
async def show(call: Call) -> DatasetDocument:
    """Show a dataset, what came last, and count what is in it."""
    which = _checked(call)
    dataset, counts, newest = await call.app.datasets.glance(*which)
    if call.query.count:
        counts = await call.app.datasets.counts(*which)
    return dataset_document(dataset, counts, newest)


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the list."""

    after: After | None = None
    limit: Limit = 50


@operations.get(
    f"{ONE}/runs",
    needs=Role.VIEWER,
    query=Brought,
    answer=Page[HarvestDocument],
    example={"items": [HARVEST], "next": None},
)
async def runs(call: Call) -> Page[HarvestDocument]:
    """List what each attempt brought to a dataset, newest first."""
    which, asked = _checked(call), call.query
    below = numbers(asked.after, 2) or (NEWEST, 0)
    found = await call.app.datasets.runs(*which, below=(below[0], below[1]), limit=asked.limit + 1)
    return Page.of(found, asked.limit, place=lambda each: (each.run_id, each.attempt)).shown(harvest_document)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a dataset is to be like."""

    key_fields: Annotated[list[str], msgspec.Meta(max_length=20)] = []
    """Which fields say what thing an item is of; none: all of them. A change counts for items that come later."""
    schema: dict[str, Any] | None = None
    """A JSON Schema; of it type, required, properties, items, enum and additionalProperties are checked."""


@operations.put(
    ONE,
    needs=Role.DEVELOPER,
    body=Settings,
    answer=DatasetDocument,
    example=DATASET,
    example_body={"key_fields": ["url"], "schema": {"type": "object", "required": ["url"]}},
)
async def put(call: Call) -> DatasetDocument:
    """Set the key fields and the schema of a dataset; make it where there is none."""
    which, body = _checked(call), call.body
    await call.app.datasets.set(*which, key_fields=body.key_fields, schema=body.schema)
    return dataset_document(*await call.app.datasets.glance(*which))


When = Annotated[datetime, msgspec.Meta(tz=True, description="RFC 3339, with its zone.")]
RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class Things(msgspec.Struct, frozen=True, kw_only=True):
    """Which things of a dataset."""

    where: Where | None = None
    contains: Contains | None = None
    search: Search | None = None
    first_seen_after: When | None = None
    first_seen_before: When | None = None
    last_seen_after: When | None = None
    last_seen_before: When | None = None
    new_in_run: RunId | None = None
    """Only those that this run found first."""
    changed_in_run: RunId | None = None
    """Only those that looked otherwise in this run than before it."""
    unseen_in_run: RunId | None = None
    """Only those that were last seen before this run."""
    after: After | None = None
    limit: Limit = 50


@operations.get(
    f"{ONE}/things",
    needs=Role.VIEWER,
    query=Things,
    answer=Page[ThingDocument],
    example={"items": [THING], "next": None},
)
async def things(call: Call) -> Page[ThingDocument]:
    """List what is in a dataset, newest first.

    Large things, or a filter that few meet, may give a short page, even an empty one; as long as it has a ``next``,
    there may be more.
    """
    which, asked = _checked(call), call.query
    below = page(asked.after)
    found = await call.app.datasets.things(
        *which, _filter(asked), below=NEWEST if below is None else below, limit=asked.limit
    )
    following = None if found.next is None else cursor(found.next)
    schema = (await call.app.datasets.get(*which)).schema
    return Page(items=[thing_document(each, schema) for each in found.things], next=following)


class Looks(msgspec.Struct, frozen=True, kw_only=True):
    """Which looks of a thing."""

    below: Annotated[int, msgspec.Meta(ge=1, le=NEWEST_LOOK)] = NEWEST_LOOK
    """Only looks with smaller numbers."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LOOKS)] = MOST_LOOKS


@operations.get(
    f"{ONE}/things/{{thing_id}}",
    needs=Role.VIEWER,
    query=Looks,
    answer=ThingHistory,
    example={"thing": THING, "looks": [LOOK]},
)
async def thing(call: Call) -> ThingHistory:
    """Show one thing and how it looked, newest first."""
    which, asked = _checked(call), call.query
    thing_id = call.number("thing_id", "thing")
    found = await call.app.datasets.thing(*which, thing_id, below=asked.below, limit=asked.limit)
    return thing_history(*found, (await call.app.datasets.get(*which)).schema)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which items of a dataset."""

    every: bool = False
    """Each item ever stored, not only the newest look of each thing."""
    where: Where | None = None
    contains: Contains | None = None
    search: Search | None = None
    after: After | None = None
    limit: Limit = 100


@operations.get(
    f"{ONE}/items",
    needs=Role.VIEWER,
    query=Asked,
    answer=Page[ItemDocument],
    example={"items": [ITEM], "next": None},
)
async def items(call: Call) -> Page[ItemDocument]:
    """List the newest item of each thing in a dataset, or every item; oldest first."""
    (project, name), asked = _checked(call), call.query
    where = conditions(asked.where, asked.contains, asked.search)
    wanted = Selection(project=project, dataset=name, every=asked.every, where=where)
    found = await call.app.items.page(wanted, cursor_of(asked.after), limit=asked.limit)
    return item_page(found, (await call.app.datasets.get(project, name)).schema)


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """Which things are looked at: the newest."""

    sample: Sample = 1000


@operations.get(f"{ONE}/fields", needs=Role.VIEWER, query=Sampled, answer=FieldsDocument, example=FIELDS)
async def fields(call: Call) -> FieldsDocument:
    """Tell which fields the newest 1,000 things of a dataset have, how often they are filled, and of what type."""
    return fields_document(await call.app.datasets.fields(*_checked(call), sample=call.query.sample))


def _checked(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"dataset {name}")
    return project, name


def _filter(asked: Things) -> ThingFilter:
    times = ("first_seen_after", "first_seen_before", "last_seen_after", "last_seen_before")
    told = {name: getattr(asked, name) for name in times}
    return ThingFilter(
        where=conditions(asked.where, asked.contains, asked.search),
        new_in_run=asked.new_in_run,
        changed_in_run=asked.changed_in_run,
        unseen_in_run=asked.unseen_in_run,
        **{name: moment(when) for name, when in told.items() if when is not None},
    )
