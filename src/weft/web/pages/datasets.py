"""Datasets: the list of them, the things of one, what each run brought to it, and how one thing looked."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote, urlencode

from weft.web.inside import Refusal
from weft.web.pages.items import AS_JSON, IN_TABLE, NOTHING, SAMPLE, listed, searched, tabled
from weft.web.rendering import Live, Page
from weft.web.scraped import Room, cell, differences, offered
from weft.web.visit import Visit
from weft.web.wanted import Wanted, formats
from weft.web.words import N_

NEW, CHANGED, GONE = "new", "changed", "gone"
ONLY = ((NEW, N_("New in it")), (CHANGED, N_("Changed in it")), (GONE, N_("Gone")))
BY_RUN = {NEW: "new_in_run", CHANGED: "changed_in_run", GONE: "unseen_in_run"}
RUNS = 10
"""Of the newest runs, one that succeeded says what is gone."""
LOOKS = 20
"""Looks of a thing on one page."""
LARGEST_THING = 50_000
"""Characters of a thing that are folded out on its page."""
AFTER_RUNS = Live(kinds=("run_finished", "dataset_"))


async def listing(visit: Visit) -> Page:
    """Every dataset, by project and name, with what came last."""
    asked = {name: visit.query.get(name, "").strip() for name in ("project", "name", "after")}
    query = {name: value for name, value in asked.items() if value} | {"newest": "true"}
    errors = dict[str, str]()
    try:
        found = (await visit.ask("GET", "/v1/datasets", query=query)).document
    except Refusal as refusal:
        if refusal.problem.status not in (403, 404, 422):
            raise
        found, errors = NOTHING, {refusal.problem.field or "project": refusal.problem.detail}
    kept = {name: asked[name] for name in ("project", "name") if asked[name]}
    more = found["next"] and f"/datasets?{urlencode({**kept, 'after': found['next']})}"
    shown = {"datasets": [each | {"page": address(each)} for each in found["items"]], "asked": asked, "errors": errors}
    shown |= {"more": more, "first": f"/datasets?{urlencode(kept)}" if asked["after"] else ""}
    return Page("datasets/list.html", shown, found, status=422 if errors else 200, live=None if errors else AFTER_RUNS)


async def things(visit: Visit) -> Page:
    """What is in a dataset, newest first: all of it, or what was new, changed or gone in the last run."""
    wanted, errors = Wanted.of(visit), dict[str, str]()
    dataset, newest, fields = await asyncio.gather(
        visit.ask("GET", api(visit), query={"count": "true" if "count" in visit.query else "false"}),
        visit.ask("GET", f"{api(visit)}/runs", query={"limit": str(RUNS)}),
        visit.ask("GET", f"{api(visit)}/fields", query={"sample": SAMPLE}),
    )
    runs, told = newest.document["items"], fields.document
    found = await _things(visit, wanted, runs, errors)
    page = address(dataset.document)
    shown = {"dataset": dataset.document, "page": page, "tab": "things", "wanted": wanted, "errors": errors}
    shown |= {"only": ONLY, "runs": runs, "fields": told, "offered": offered(told["fields"], wanted.columns)}
    shown |= tabled(found["items"], told, wanted) if wanted.view != "json" else listed(found["items"])
    shown |= {"exports": _exports(visit, wanted), "every": _exports(visit, wanted, every="true")}
    shown["more"] = found["next"] and wanted.address(page, after=found["next"])
    document = {"dataset": dataset.document, "things": found}
    live = None if wanted.after or wanted.search or errors else AFTER_RUNS
    return Page("datasets/things.html", shown, document, status=422 if errors else 200, live=live)


async def brought(visit: Visit) -> Page:
    """What each run brought to a dataset, newest first."""
    after = visit.query.get("after", "")
    dataset, found = await asyncio.gather(
        visit.ask("GET", api(visit), query={"count": "false"}),
        visit.ask("GET", f"{api(visit)}/runs", query={"after": after} if after else {}),
    )
    page, runs = address(dataset.document), found.document
    shown = {"dataset": dataset.document, "page": page, "tab": "runs", "runs": runs["items"]}
    shown["older"] = runs["next"] and f"{page}/runs?{urlencode({'after': runs['next']})}"
    shown["newest"] = f"{page}/runs" if after else ""
    return Page("datasets/runs.html", shown, runs, live=None if after else AFTER_RUNS)


async def thing(visit: Visit) -> Page:
    """One thing: how it looks, and each look with what was otherwise before it."""
    below = visit.query.get("below", "")
    query = {"limit": str(LOOKS + 1), **({"below": below} if below else {})}
    dataset, found = await asyncio.gather(
        visit.ask("GET", api(visit), query={"count": "false"}),
        visit.ask("GET", f"{api(visit)}/things/{quote(visit.path('thing_id'), safe='')}", query=query),
    )
    history, room, page = found.document, Room(LARGEST_THING), address(dataset.document)
    own = f"{page}/things/{history['thing']['id']}"
    looks = history["looks"]
    shown = {"dataset": dataset.document, "page": page, "thing": history["thing"], "looks": compared(looks, room)}
    shown["values"] = [(name, cell(value, room)) for name, value in list(history["thing"]["data"].items())[:500]]
    shown["older"] = f"{own}?below={looks[LOOKS - 1]['number']}" if len(looks) > LOOKS else ""
    shown |= {"newest": own if below else "", "own": own}
    return Page("datasets/thing.html", shown, history)


def compared(looks: list[dict[str, Any]], room: Room) -> list[dict[str, Any]]:
    """Looks, newest first, each with what was otherwise in the one before it; the oldest one only serves for that."""
    compared = []
    for place, look in enumerate(looks[:LOOKS]):
        before = looks[place + 1]["data"] if place + 1 < len(looks) else None
        found = [] if before is None else differences(before, look["data"], room)
        same = len(look["data"]) - sum(each.kind != "removed" for each in found)
        compared.append(look | {"differences": found, "is_first": before is None, "same": same})
    return compared


def address(dataset: dict[str, Any]) -> str:
    """The page of a dataset."""
    return f"/datasets/{quote(dataset['project'], safe='')}/{quote(dataset['name'], safe='')}"


def api(visit: Visit) -> str:
    """What the API calls it."""
    return f"/v1{address(visit.request.path_params)}"


async def _things(visit: Visit, wanted: Wanted, runs: list[dict[str, Any]], errors: dict[str, str]) -> dict[str, Any]:
    query = {**wanted.conditions, "limit": AS_JSON if wanted.view == "json" else IN_TABLE}
    query |= {"after": wanted.after} if wanted.after else {}
    if wanted.only in BY_RUN:
        run_id = _last(runs, wanted.only)
        if run_id is None:
            return NOTHING
        query[BY_RUN[wanted.only]] = str(run_id)
    return await searched(visit, f"{api(visit)}/things", query, errors)


def _last(runs: list[dict[str, Any]], only: str) -> int | None:
    """The run that a thing is new, changed or gone in; one that is not over, or failed, has not seen everything."""
    known = [each["run_id"] for each in runs if only != GONE or each["state"] == "succeeded"]
    return known[0] if known else None


def _exports(visit: Visit, wanted: Wanted, **more: str) -> list[tuple[str, str]]:
    return [(each, wanted.export(f"{api(visit)}/export", each, **more)) for each in formats()]


ONE = "/datasets/{project}/{name}"
PAGES = {
    "/datasets": {"GET": listing},
    ONE: {"GET": things},
    f"{ONE}/runs": {"GET": brought},
    f"{ONE}/things/{{thing_id}}": {"GET": thing},
}
