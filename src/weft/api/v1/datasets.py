"""Datasets: what spiders have found so far, whatever run has found it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.items_asked import After, Contains, Limit, Where, conditions, cursor_of, item_page
from weft.api.operation import Operations
from weft.api.paging import Page, cursor, page
from weft.api.v1.items import ITEM
from weft.clock import moment
from weft.documents.items import (
    DatasetDocument,
    FieldsDocument,
    ItemDocument,
    ThingDocument,
    ThingHistory,
    dataset_document,
    fields_document,
    thing_document,
    thing_history,
)
from weft.items.datasets import NEWEST, ThingFilter
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
FIELDS = {
    "sampled": 1000,
    "fields": [{"name": "price", "present": 1000, "filled": 990, "fill_rate": 0.99, "types": {"number": 1000}}],
    "inferred": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]},
    "invalid": 0,
    "problems": [],
}


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Which datasets."""

    project: str | None = None


@operations.get(
    "/datasets",
    needs=Role.VIEWER,
    query=Listed,
    answer=Page[DatasetDocument],
    example={"items": [DATASET | {"things": None, "items": None}], "next": None},
)
async def list_(call: Call) -> Page[DatasetDocument]:
    """List the datasets that there are, by project and name."""
    found = await call.app.datasets.all(call.visible(call.query.project))
    return Page(items=[dataset_document(each) for each in found])


@operations.get(ONE, needs=Role.VIEWER, answer=DatasetDocument, example=DATASET)
async def show(call: Call) -> DatasetDocument:
    """Show a dataset, and count what is in it."""
    which = _checked(call)
    return dataset_document(await call.app.datasets.get(*which), await call.app.datasets.counts(*which))


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
    made = await call.app.datasets.set(*which, key_fields=body.key_fields, schema=body.schema)
    return dataset_document(made, await call.app.datasets.counts(*which))


When = Annotated[datetime, msgspec.Meta(tz=True, description="RFC 3339, with its zone.")]
RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class Things(msgspec.Struct, frozen=True, kw_only=True):
    """Which things of a dataset."""

    where: Where | None = None
    contains: Contains | None = None
    first_seen_after: When | None = None
    first_seen_before: When | None = None
    last_seen_after: When | None = None
    last_seen_before: When | None = None
    new_in_run: RunId | None = None
    """Only those that this run found first."""
    changed_in_run: RunId | None = None
    """Only those that looked otherwise in this run than before it."""
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
    return Page(items=[thing_document(each) for each in found.things], next=following)


@operations.get(
    f"{ONE}/things/{{thing_id}}",
    needs=Role.VIEWER,
    answer=ThingHistory,
    example={"thing": THING, "looks": [LOOK]},
)
async def thing(call: Call) -> ThingHistory:
    """Show one thing and how it looked, newest first."""
    which = _checked(call)
    return thing_history(*await call.app.datasets.thing(*which, call.number("thing_id", "thing")))


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which items of a dataset."""

    every: bool = False
    """Each item ever stored, not only the newest look of each thing."""
    where: Where | None = None
    contains: Contains | None = None
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
    wanted = Selection(project=project, dataset=name, every=asked.every, where=conditions(asked.where, asked.contains))
    return item_page(await call.app.items.page(wanted, cursor_of(asked.after), limit=asked.limit))


@operations.get(f"{ONE}/fields", needs=Role.VIEWER, answer=FieldsDocument, example=FIELDS)
async def fields(call: Call) -> FieldsDocument:
    """Tell which fields the newest 1,000 things of a dataset have, how often they are filled, and of what type."""
    return fields_document(await call.app.datasets.fields(*_checked(call)))


def _checked(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"dataset {name}")
    return project, name


def _filter(asked: Things) -> ThingFilter:
    times = ("first_seen_after", "first_seen_before", "last_seen_after", "last_seen_before")
    told = {name: getattr(asked, name) for name in times}
    return ThingFilter(
        where=conditions(asked.where, asked.contains),
        new_in_run=asked.new_in_run,
        changed_in_run=asked.changed_in_run,
        **{name: moment(when) for name, when in told.items() if when is not None},
    )
