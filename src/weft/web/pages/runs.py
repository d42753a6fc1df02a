"""Runs of the whole fleet, newest first, as they happen."""

from __future__ import annotations

from urllib.parse import urlencode

from weft.web.inside import Refusal
from weft.web.rendering import Live, Page
from weft.web.visit import Visit

FILTERS = ("project", "task", "kind", "state", "trigger", "outcome", "correlation_id")
STATES = ("queued", "running", "succeeded", "failed", "cancelled")


async def listing(visit: Visit) -> Page:
    """The runs that are asked for; a filter that cannot be is told beside its field."""
    asked = {name: visit.query.get(name, "").strip() for name in (*FILTERS, "after")}
    query = {name: value for name, value in asked.items() if value}
    errors: dict[str, str] = {}
    try:
        found = (await visit.ask("GET", "/v1/runs", query=query)).document
    except Refusal as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        found, errors = {"items": [], "next": None}, {refusal.problem.field or "project": refusal.problem.detail}
    kept = {name: value for name, value in query.items() if name != "after"}
    older = "" if found["next"] is None else "/runs?" + urlencode({**kept, "after": found["next"]})
    newest = "/runs?" + urlencode(kept) if asked["after"] else ""
    shown = {"runs": found["items"], "asked": asked, "states": STATES, "errors": errors}
    shown |= {"older": older, "newest": newest}
    live = None if asked["after"] else Live(kinds=("run_",))
    return Page("runs/list.html", shown, found, status=422 if errors else 200, live=live)


PAGES = {"/runs": {"GET": listing}}
