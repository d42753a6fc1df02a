"""What guests see who have a link: the runs, spiders and datasets of one project, or one dataset. Nothing else.

A guest has no session. The API is asked in the name of the link, by its token, and of a link that does not count it
tells the same as of one that never was.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from weft.api.problems import Refused
from weft.items.export.formats import Format
from weft.web.inside import Answer, PassedOn, Refusal
from weft.web.rendering import Page
from weft.web.visit import Visit

GUEST = "/guest/"
HEADERS = {"Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex, nofollow"}
RUNS, ITEMS = "25", "50"
"""A page of them."""
MOST_COLUMNS = 12
LONGEST_CELL = 300
FORMATS = [Format.CSV, Format.JSON, Format.JSONL]


async def look(visit: Visit) -> Page:
    """What the link shows: a project, or a dataset."""
    shown = (await _ask(visit, "/v1/guest")).document
    if shown["dataset"] is not None:
        return await _dataset(visit, shown, shown["dataset"])
    runs, spiders, datasets = await asyncio.gather(
        _ask(visit, "/v1/guest/runs", limit=RUNS, **_after(visit)),
        _ask(visit, "/v1/guest/spiders"),
        _ask(visit, "/v1/guest/datasets"),
    )
    found = {"runs": runs.document, "spiders": spiders.document["items"], "datasets": datasets.document["items"]}
    told: dict[str, Any] = {"link": shown, "here_is": _place(visit), **found} | _pages(visit, runs.document, "")
    return Page("guest/project.html", told, {"shown": shown, **found}, headers=HEADERS)


async def dataset(visit: Visit) -> Page:
    """One dataset of a project that the link shows."""
    return await _dataset(visit, (await _ask(visit, "/v1/guest")).document, visit.path("name"))


async def export(visit: Visit) -> Response:
    """The dataset as a file, however large it is."""
    path = f"/v1/guest/datasets/{quote(visit.path('name'), safe='')}/export"
    await _ask(visit, "/v1/guest")
    asked = visit.query.get("format", "")
    query = {"format": asked if asked in FORMATS else Format.CSV.value}
    return PassedOn(visit.api, path, query, {"authorization": _authorization(visit)}, HEADERS)


async def _dataset(visit: Visit, shown: dict[str, Any], name: str) -> Page:
    path = f"/v1/guest/datasets/{quote(name, safe='')}/items"
    items = (await _ask(visit, path, limit=ITEMS, **_after(visit))).document
    rows = [each["data"] for each in items["items"]]
    columns = list(dict.fromkeys(field for row in rows for field in row))
    at = "" if shown["dataset"] is not None else f"/datasets/{quote(name, safe='')}"
    told: dict[str, Any] = {"link": shown, "name": name, "here_is": _place(visit), "rows": rows, "formats": FORMATS}
    told |= {"columns": columns[:MOST_COLUMNS], "left_out": columns[MOST_COLUMNS:], "longest": LONGEST_CELL}
    told |= {"files": f"{_place(visit)}/datasets/{quote(name, safe='')}/export"} | _pages(visit, items, at)
    return Page("guest/dataset.html", told, {"shown": shown, "items": items}, headers=HEADERS)


async def _ask(visit: Visit, path: str, **query: str) -> Answer:
    """Ask as a guest; who has no link that counts is told that there is nothing, whatever the reason."""
    try:
        return await visit.ask("GET", path, query=query, headers={"authorization": _authorization(visit)})
    except Refusal as refusal:
        if refusal.problem.status in (401, 403, 404):
            raise Refused("not_found", "there is nothing to see here") from None
        raise


def _authorization(visit: Visit) -> str:
    return f"Guest {visit.path('token')}"


def _place(visit: Visit) -> str:
    return GUEST + quote(visit.path("token"), safe="")


def _after(visit: Visit) -> dict[str, str]:
    after = visit.query.get("after", "")
    return {"after": after} if after else {}


def _pages(visit: Visit, found: dict[str, Any], at: str) -> dict[str, str]:
    """Where the list goes on, and where it begins."""
    place = _place(visit) + at
    older = "" if found["next"] is None else f"{place}?{urlencode({'after': found['next']})}"
    return {"older": older, "newest": place if _after(visit) else ""}


def hidden(path: str) -> str:
    """An address as it may stand in a log: without the token of a guest's link."""
    return GUEST + "…" if path.startswith(GUEST) else path


PAGES = {
    "/guest/{token}": {"GET": look},
    "/guest/{token}/datasets/{name}": {"GET": dataset},
    "/guest/{token}/datasets/{name}/export": {"GET": export},
}
HANDLES = frozenset({look, dataset, export})
"""What guests may look at, who are not logged in."""
