"""Anything by a part of its name: the palette's answers, and a page for those who have no scripts."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from weft.operations import search
from weft.operations.search import SearchHit
from weft.web.rendering import WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit

RESULT_PAGES = {
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


async def search_page(visit: Visit) -> WebPage:
    """What was asked for, each with the page that it is on."""
    asked, errors = visit.query.get("q", "").strip()[:LONGEST], {}
    things: list[dict[str, Any]] = []
    try:
        answer = await visit.call(search.list_, query={"q": asked}) if asked else search.SearchResultsDocument(found=[])
        things = [_result_link(each) for each in answer.found]
    except ApiError as refusal:
        if refusal.problem.status != 422:
            raise
        errors = {"q": refusal.problem.detail}
    shown = {"asked": asked, "found": things, "kinds": KINDS, "icons": ICONS, "errors": errors}
    return WebPage("find/list.html", shown, {"found": things}, status=422 if errors else 200)


def _result_link(each: SearchHit) -> dict[str, Any]:
    parts = {name: quote(str(getattr(each, name) or ""), safe="") for name in ("project", "name", "number")}
    name = each.name if each.project is None or each.kind == "run" else f"{each.project}/{each.name}"
    name = f"{each.number} · {name}" if each.number is not None else name
    return {"kind": each.kind, "name": name, "page": RESULT_PAGES[each.kind].format(**parts)}


PAGES = {"/find": {"GET": search_page}}
