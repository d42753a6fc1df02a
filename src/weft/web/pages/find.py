"""Anything by a part of its name: the palette's answers, and a page for those who have no scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from weft.web.inside import Refusal
from weft.web.rendering import Page
from weft.web.visit import Visit
from weft.web.words import N_

PLACES = {
    "run": "/runs/{name}",
    "task": "/tasks/{project}/{name}",
    "project": "/projects/{name}",
    "spider": "/projects/{project}/spiders/{name}",
    "dataset": "/datasets/{project}/{name}",
    "worker": "/workers/{name}",
    "crawl": "/crawls/{number}",
}
KINDS = {
    "run": N_("Run"),
    "task": N_("Task"),
    "project": N_("Project"),
    "spider": N_("Spider"),
    "dataset": N_("Dataset"),
    "worker": N_("Worker"),
    "crawl": N_("Crawl"),
}
ICONS = {kind: f"{kind}s" for kind in KINDS} | {"spider": "spider"}
LONGEST = 100


async def found(visit: Visit) -> Page:
    """What was asked for, each with the page that it is on."""
    asked, errors = visit.query.get("q", "").strip()[:LONGEST], {}
    things: list[dict[str, Any]] = []
    try:
        answer = (await visit.ask("GET", "/v1/find", query={"q": asked})).document if asked else {"found": []}
        things = [_placed(each) for each in answer["found"]]
    except Refusal as refusal:
        if refusal.problem.status != 422:
            raise
        errors = {"q": refusal.problem.detail}
    shown = {"asked": asked, "found": things, "kinds": KINDS, "icons": ICONS, "errors": errors}
    return Page("find/list.html", shown, {"found": things}, status=422 if errors else 200)


def _placed(each: Mapping[str, Any]) -> dict[str, Any]:
    parts = {name: quote(str(each[name] or ""), safe="") for name in ("project", "name", "number")}
    name = each["name"] if each["project"] is None or each["kind"] == "run" else f"{each['project']}/{each['name']}"
    name = f"{each['number']} · {name}" if each["number"] is not None else name
    return {"kind": each["kind"], "name": name, "page": PLACES[each["kind"]].format(**parts)}


PAGES = {"/find": {"GET": found}}
