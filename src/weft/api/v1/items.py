"""Items: what runs have yielded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.items_asked import After, Contains, Limit, Search, Where, conditions, cursor_of, item_page
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.documents.items import (
    FieldsDocument,
    ItemDocument,
    StatsDocument,
    fields_document,
    item_document,
    stats_document,
)
from weft.errors import Invalid, NotFound
from weft.items.model import Selection

operations = Operations("items")

ITEM = {
    "run_id": 7,
    "attempt": 1,
    "seq": 1,
    "at": "2026-12-01T02:00:04.100Z",
    "thing_id": 12,
    "data": {"title": "A book", "price": 12.5},
    "problem": None,
}
STATS = {
    "run_id": 7,
    "attempt": 1,
    "dataset": "prices",
    "items": 120,
    "new_things": 3,
    "changed_things": 9,
    "refused": 0,
    "invalid": 0,
    "stats": {"item_scraped_count": 120},
    "drift": None,
    "at": "2026-12-01T02:00:04.100Z",
}


FIELDS = {
    "sampled": 1000,
    "fields": [{"name": "price", "present": 1000, "filled": 990, "fill_rate": 0.99, "types": {"number": 1000}}],
    "inferred": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]},
    "invalid": 0,
    "problems": [],
}

Sample = Annotated[int, msgspec.Meta(ge=1, le=1000, description="How many are looked at, at most.")]
Attempt = Annotated[str, msgspec.Meta(pattern=r"^(all|[1-9][0-9]{0,8})$")]


class OfAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempt of a run."""

    attempt: Attempt | None = None
    """Its number, or all; the last one unless told."""


class Asked(OfAttempt, frozen=True, kw_only=True):
    """Which items of a run."""

    where: Where | None = None
    contains: Contains | None = None
    search: Search | None = None
    after: After | None = None
    limit: Limit = 100


@operations.get(
    "/runs/{run_id}/items",
    needs=Role.VIEWER,
    query=Asked,
    answer=Page[ItemDocument],
    example={"items": [ITEM], "next": None},
)
async def list_(call: Call) -> Page[ItemDocument]:
    """List the items that a run has yielded, in their order.

    Large items, or a filter that few meet, may give a short page, even an empty one; as long as it has a ``next``,
    there may be more.
    """
    asked: Asked = call.query
    wanted = replace(await _selected(call), where=conditions(asked.where, asked.contains, asked.search))
    found = await call.app.items.page(wanted, cursor_of(asked.after), limit=asked.limit)
    return item_page(found, await _schema(call, wanted.run_id))


@operations.get("/runs/{run_id}/items/{attempt}/{seq}", needs=Role.VIEWER, answer=ItemDocument, example=ITEM)
async def show(call: Call) -> ItemDocument:
    """Show one item of a run."""
    run_id = await _checked(call)
    row = await call.app.items.one(run_id, call.number("attempt", "attempt"), call.number("seq", "item"))
    return item_document(row, await _schema(call, run_id))


class OfFields(OfAttempt, frozen=True, kw_only=True):
    """Which items are looked at."""

    sample: Sample = 1000


@operations.get("/runs/{run_id}/fields", needs=Role.VIEWER, query=OfFields, answer=FieldsDocument, example=FIELDS)
async def fields(call: Call) -> FieldsDocument:
    """Tell which fields the first 1,000 items of a run have, how often they are filled, and of what type."""
    return fields_document(await call.app.items.fields(await _selected(call), sample=call.query.sample))


@operations.get(
    "/runs/{run_id}/stats",
    needs=Role.VIEWER,
    answer=Page[StatsDocument],
    example={"items": [STATS], "next": None},
)
async def stats(call: Call) -> Page[StatsDocument]:
    """Tell what each attempt of a run has yielded, and its statistics."""
    return Page(items=[stats_document(each) for each in await call.app.items.stats(await _checked(call))])


async def _selected(call: Call) -> Selection:
    """The items of the attempts that were asked for."""
    run_id, asked = await _checked(call), call.query.attempt
    number = None if asked in (None, "all") else int(asked)
    if number is not None and number > (had := (await call.app.runs.get(run_id)).attempt):
        raise Invalid("attempt", number, f"run {run_id} has had {had} attempts")
    return Selection(run_id=run_id, attempt=number, all_attempts=asked == "all")


async def _schema(call: Call, run_id: int | None) -> Mapping[str, Any] | None:
    dataset = None if run_id is None else await call.app.items.dataset(run_id)
    return None if dataset is None else dataset.schema


async def _checked(call: Call) -> int:
    """The run that the address names, of a project where the caller may do this."""
    run_id = call.number("run_id", "run")
    found = await call.app.runs.projects_of([run_id])
    if run_id not in found:
        raise NotFound("run", run_id)
    call.check(found[run_id], f"run {run_id}")
    return run_id
