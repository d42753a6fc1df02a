"""What a run has yielded: as a table, as JSON, and one item by itself."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from weft.web.inside import Refusal
from weft.web.rendering import Live, Page
from weft.web.scraped import Room, cell, cells, columns_of, offered, pretty
from weft.web.visit import Visit
from weft.web.wanted import Wanted, formats

IN_TABLE, AS_JSON = "50", "20"
"""Items of one page."""
SAMPLE = "200"
"""Items that say how often a field is filled."""
LARGEST_SHOWN = 100_000
"""Characters of one item that its own page shows."""
LARGEST_LISTED = 1_500
NOTHING: dict[str, Any] = {"items": [], "next": None}
NO_FIELDS: dict[str, Any] = {"sampled": 0, "fields": [], "invalid": 0, "problems": []}
GOING_ON = ("queued", "running")


async def listing(visit: Visit) -> Page:
    """The items of a run, from its first on, with how often each field is filled."""
    wanted, errors = Wanted.of(visit), dict[str, str]()
    run, stats, fields, found = await asyncio.gather(
        visit.ask("GET", _api(visit)),
        visit.ask("GET", f"{_api(visit)}/stats"),
        _fields(visit, wanted),
        _items(visit, wanted, errors),
    )
    run_document, attempts = run.document, stats.document["items"]
    page = f"/runs/{run_document['id']}/items"
    shown = {"run": run_document, "attempts": attempts, "counts": _counts(attempts, wanted), "wanted": wanted}
    shown |= tabled(found["items"], fields, wanted) if wanted.view != "json" else listed(found["items"])
    shown |= {"page": page, "fields": fields, "offered": offered(fields["fields"], wanted.columns), "errors": errors}
    shown |= {"exports": _exports(visit, wanted), "more": found["next"] and wanted.address(page, after=found["next"])}
    live = Live(kinds=("items_", "run_"), run_id=run_document["id"])
    is_live = run_document["state"] in GOING_ON and not errors
    return Page("items/list.html", shown, found, status=422 if errors else 200, live=live if is_live else None)


async def detail(visit: Visit) -> Page:
    """One item: its fields, itself as JSON, and what it was seen of."""
    place = "/".join(quote(visit.path(name), safe="") for name in ("attempt", "seq"))
    run, stats, item = await asyncio.gather(
        visit.ask("GET", _api(visit)),
        visit.ask("GET", f"{_api(visit)}/stats"),
        visit.ask("GET", f"{_api(visit)}/items/{place}"),
    )
    found, room = item.document, Room(LARGEST_SHOWN)
    attempts = stats.document["items"]
    attempt: dict[str, Any] = next((each for each in attempts if each["attempt"] == found["attempt"]), {})
    text, is_cut = pretty(found["data"], LARGEST_SHOWN)
    shown = {"run": run.document, "item": found, "dataset": attempt.get("dataset"), "last": attempt.get("items", 0)}
    shown |= {"text": text, "is_cut": is_cut, "page": f"/runs/{found['run_id']}/items"}
    shown["values"] = [(name, cell(value, room)) for name, value in list(found["data"].items())[:500]]
    return Page("items/detail.html", shown, found)


def tabled(items: list[dict[str, Any]], fields: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    """Items, or things, as rows of a table."""
    columns, room = columns_of(fields["fields"], wanted.columns), Room()
    rows = [{"item": each, "cells": cells(each["data"], columns, room)} for each in items]
    return {"columns": columns, "rows": rows, "has_problems": any(each["problem"] for each in items)}


def listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Items as JSON, one below the other."""
    rows = []
    for each in items:
        text, is_cut = pretty(each["data"], LARGEST_LISTED)
        rows.append({"item": each, "text": text, "is_cut": is_cut})
    return {"columns": [], "rows": rows, "has_problems": False}


async def _items(visit: Visit, wanted: Wanted, errors: dict[str, str]) -> dict[str, Any]:
    """A page of items; what cannot be asked for is told beside its field."""
    query = {**wanted.conditions, "limit": AS_JSON if wanted.view == "json" else IN_TABLE}
    query |= {name: value for name, value in (("attempt", wanted.attempt), ("after", wanted.after)) if value}
    return await searched(visit, f"{_api(visit)}/items", query, errors)


async def searched(visit: Visit, path: str, query: dict[str, str], errors: dict[str, str]) -> dict[str, Any]:
    """A page of a list; nothing where it cannot be asked for so, which is told beside its field."""
    try:
        found: dict[str, Any] = (await visit.ask("GET", path, query=query)).document
    except Refusal as refusal:
        if refusal.problem.status != 422:
            raise
        field = refusal.problem.field or "search"
        errors["search" if field in ("where", "contains") else field] = refusal.problem.detail
        return NOTHING
    return found


async def _fields(visit: Visit, wanted: Wanted) -> dict[str, Any]:
    query = {"sample": SAMPLE, **({"attempt": wanted.attempt} if wanted.attempt else {})}
    try:
        found: dict[str, Any] = (await visit.ask("GET", f"{_api(visit)}/fields", query=query)).document
    except Refusal as refusal:
        if refusal.problem.status != 422:  # which is told with the items
            raise
        return NO_FIELDS
    return found


def _counts(attempts: list[dict[str, Any]], wanted: Wanted) -> dict[str, Any] | None:
    """What was counted of the attempt that is shown: the last one unless another was asked for."""
    chosen = [each for each in attempts if str(each["attempt"]) == wanted.attempt]
    known = chosen or attempts
    return known[-1] if known else None


def _exports(visit: Visit, wanted: Wanted) -> list[tuple[str, str]]:
    attempt = {"attempt": wanted.attempt} if wanted.attempt.isdecimal() else {}
    return [(each, wanted.export(f"{_api(visit)}/items/export", each, **attempt)) for each in formats()]


def _api(visit: Visit) -> str:
    return f"/v1/runs/{quote(visit.path('run_id'), safe='')}"


PAGES = {"/runs/{run_id}/items": {"GET": listing}, "/runs/{run_id}/items/{attempt}/{seq}": {"GET": detail}}
