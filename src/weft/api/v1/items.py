"""Items: what runs have yielded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.items_asked import After, Contains, Limit, Where, conditions, cursor_of, item_page
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.documents.items import ItemDocument, StatsDocument, stats_document
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


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which items of a run."""

    attempt: Annotated[str, msgspec.Meta(pattern=r"^(all|[1-9][0-9]{0,8})$")] | None = None
    """Its number, or all; the last one unless told."""
    where: Where | None = None
    contains: Contains | None = None
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
    run_id, asked = await _checked(call), call.query
    number = None if asked.attempt in (None, "all") else int(asked.attempt)
    if number is not None and number > (had := (await call.app.runs.get(run_id)).attempt):
        raise Invalid("attempt", number, f"run {run_id} has had {had} attempts")
    wanted = Selection(
        run_id=run_id,
        attempt=number,
        all_attempts=asked.attempt == "all",
        where=conditions(asked.where, asked.contains),
    )
    return item_page(await call.app.items.page(wanted, cursor_of(asked.after), limit=asked.limit))


@operations.get(
    "/runs/{run_id}/stats",
    needs=Role.VIEWER,
    answer=Page[StatsDocument],
    example={"items": [STATS], "next": None},
)
async def stats(call: Call) -> Page[StatsDocument]:
    """Tell what each attempt of a run has yielded, and its statistics."""
    return Page(items=[stats_document(each) for each in await call.app.items.stats(await _checked(call))])


async def _checked(call: Call) -> int:
    """The run that the address names, of a project where the caller may do this."""
    run_id = call.number("run_id", "run")
    found = await call.app.runs.projects_of([run_id])
    if run_id not in found:
        raise NotFound("run", run_id)
    call.check(found[run_id], f"run {run_id}")
    return run_id
