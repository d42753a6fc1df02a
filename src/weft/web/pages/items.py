"""What a run has yielded: as a table, as JSON, and one item by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from weft.operations import items, paging, runs
from weft.operations.datasets import RecordDocument
from weft.operations.items import AttemptStatsDocument, ItemDocument, ItemFieldsDocument
from weft.web.rendering import LiveRefresh, WebPage
from weft.web.scraped_values import (
    ExpandBudget,
    ItemsQuery,
    columns_of,
    export_formats,
    offered,
    pretty,
    value_cell,
    value_cells,
)
from weft.web.visit import ApiError, Visit

A = TypeVar("A")

IN_TABLE, AS_JSON = "50", "20"
"""Items of one page."""
SAMPLE = 200
"""Items that say how often a field is filled."""
LARGEST_SHOWN = 100_000
"""Characters of one item that its own page shows."""
LARGEST_LISTED = 1_500
NO_FIELDS = ItemFieldsDocument(sampled=0, fields=[], inferred={}, invalid=0, problems=[])
GOING_ON = ("queued", "paused", "running")


async def listing(visit: Visit) -> WebPage:
    """The items of a run, from its first on, with how often each field is filled."""
    wanted, errors, run_id = ItemsQuery.of(visit), dict[str, str](), visit.path("run_id")
    run, stats, fields, found = await asyncio.gather(
        visit.call(runs.show, run_id=run_id),
        visit.call(items.stats, run_id=run_id),
        _fields(visit, wanted),
        _items(visit, wanted, errors),
    )
    attempts, page = stats.items, f"/runs/{run.id}/items"
    shown = {"run": run, "attempts": attempts, "counts": _counts(attempts, wanted), "wanted": wanted}
    shown |= tabled(found.items, fields, wanted) if wanted.view != "json" else listed(found.items)
    shown |= {"page": page, "fields": fields, "offered": offered(fields.fields, wanted.columns), "errors": errors}
    shown |= {"exports": _exports(visit, wanted), "more": found.next and wanted.address(page, after=found.next)}
    live = LiveRefresh(kinds=("items_", "run_"), run_id=run.id)
    is_live = run.state in GOING_ON and not errors
    return WebPage("items/list.html", shown, found, status=422 if errors else 200, live=live if is_live else None)


async def detail(visit: Visit) -> WebPage:
    """One item: its fields, itself as JSON, and what it was seen of."""
    run_id, room = visit.path("run_id"), ExpandBudget(LARGEST_SHOWN)
    run, stats, item = await asyncio.gather(
        visit.call(runs.show, run_id=run_id),
        visit.call(items.stats, run_id=run_id),
        visit.call(items.show, run_id=run_id, attempt=visit.path("attempt"), seq=visit.path("seq")),
    )
    attempt = next((each for each in stats.items if each.attempt == item.attempt), None)
    text, is_cut = pretty(item.data, LARGEST_SHOWN)
    shown: dict[str, Any] = {"run": run, "item": item, "dataset": attempt and attempt.dataset}
    shown |= {"last": 0 if attempt is None else attempt.items, "page": f"/runs/{item.run_id}/items"}
    shown |= {"text": text, "is_cut": is_cut}
    shown["values"] = [(name, value_cell(value, room)) for name, value in list(item.data.items())[:500]]
    return WebPage("items/detail.html", shown, item)


def tabled(
    found: Sequence[ItemDocument] | Sequence[RecordDocument], fields: ItemFieldsDocument, wanted: ItemsQuery
) -> dict[str, Any]:
    """Items, or things, as rows of a table."""
    columns, room = columns_of(fields.fields, wanted.columns), ExpandBudget()
    rows = [{"item": each, "cells": value_cells(each.data, columns, room)} for each in found]
    return {"columns": columns, "rows": rows, "has_problems": any(each.problem for each in found)}


def listed(found: Sequence[ItemDocument] | Sequence[RecordDocument]) -> dict[str, Any]:
    """Items as JSON, one below the other."""
    rows = []
    for each in found:
        text, is_cut = pretty(each.data, LARGEST_LISTED)
        rows.append({"item": each, "text": text, "is_cut": is_cut})
    return {"columns": [], "rows": rows, "has_problems": False}


async def _items(visit: Visit, wanted: ItemsQuery, errors: dict[str, str]) -> paging.Page[ItemDocument]:
    """A page of items; what cannot be asked for is told beside its field."""
    query = {**wanted.conditions, "limit": AS_JSON if wanted.view == "json" else IN_TABLE}
    query |= {name: value for name, value in (("attempt", wanted.attempt), ("after", wanted.after)) if value}
    return await searched(visit.call(items.list_, run_id=visit.path("run_id"), query=query), errors)


async def searched(asking: Awaitable[paging.Page[A]], errors: dict[str, str]) -> paging.Page[A]:
    """A page of a list; nothing where it cannot be asked for so, which is told beside its field."""
    try:
        return await asking
    except ApiError as refusal:
        if refusal.problem.status != 422:
            raise
        field = refusal.problem.field or "search"
        errors["search" if field in ("where", "contains") else field] = refusal.problem.detail
        return paging.Page(items=[])


async def _fields(visit: Visit, wanted: ItemsQuery) -> ItemFieldsDocument:
    query = {"sample": str(SAMPLE), **({"attempt": wanted.attempt} if wanted.attempt else {})}
    try:
        return await visit.call(items.fields, run_id=visit.path("run_id"), query=query)
    except ApiError as refusal:
        if refusal.problem.status != 422:  # which is told with the items
            raise
        return NO_FIELDS


def _counts(attempts: Sequence[AttemptStatsDocument], wanted: ItemsQuery) -> AttemptStatsDocument | None:
    """What was counted of the attempt that is shown: the last one unless another was asked for."""
    chosen = [each for each in attempts if str(each.attempt) == wanted.attempt]
    known = chosen or attempts
    return known[-1] if known else None


def _exports(visit: Visit, wanted: ItemsQuery) -> list[tuple[str, str]]:
    attempt = {"attempt": wanted.attempt} if wanted.attempt.isdecimal() else {}
    return [(each, wanted.export(f"{_api(visit)}/items/export", each, **attempt)) for each in export_formats()]


def _api(visit: Visit) -> str:
    return f"/v1/runs/{quote(visit.path('run_id'), safe='')}"


PAGES = {"/runs/{run_id}/items": {"GET": listing}, "/runs/{run_id}/items/{attempt}/{seq}": {"GET": detail}}
