"""The hosts and the addresses of a crawl, page by page."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlencode

from weft.crawls.reasons import sentence
from weft.web.inside import Refusal
from weft.web.pages.crawls import address_of, is_to_come
from weft.web.rendering import Page
from weft.web.visit import Visit

STATES = ("queued", "leased", "done", "failed", "skipped")


async def hosts(visit: Visit) -> Page:
    """The hosts of a crawl: how much of each is done, who holds it, and until when it is left alone."""
    found = await _listed(visit, "hosts", ("after",))
    shown = found | {"left_alone": [each["host"] for each in found["found"]["items"] if is_to_come(each["next_at"])]}
    return Page("crawls/hosts.html", shown, found["found"])


async def urls(visit: Visit) -> Page:
    """Addresses that a crawl knows, of one state and one host where that is asked for."""
    found = await _listed(visit, "urls", ("state", "host", "after"))
    listed = [each | {"why": sentence(each["reason"])} for each in found["found"]["items"]]
    shown = found | {"states": STATES, "listed": listed}
    return Page("crawls/urls.html", shown, found["found"], status=422 if found["errors"] else 200)


async def skips(visit: Visit) -> Page:
    """What was left out, by reason, host and pattern."""
    found = await _listed(visit, "skips", ("reason",))
    return Page("crawls/skips.html", found, found["found"])


async def _listed(visit: Visit, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    """A part of a crawl with the crawl that it is of; a filter that cannot be is told beside its field."""
    address = address_of(visit)
    asked = {name: visit.query.get(name, "").strip() for name in names}
    query = {name: value for name, value in asked.items() if value}
    report, found, errors = await _asked(visit, address, what, query)
    kept = {name: value for name, value in query.items() if name != "after"}
    more, first = found.get("next"), f"{address}/{what}"
    return {
        "crawl": report["crawl"],
        "report": report,
        "found": found,
        "asked": asked,
        "errors": errors,
        "older": f"{first}?" + urlencode({**kept, "after": more}) if more else "",
        "newest": f"{first}?{urlencode(kept)}".rstrip("?") if asked.get("after") else "",
    }


async def _asked(
    visit: Visit, address: str, what: str, query: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    report = visit.ask("GET", f"/v1{address}")
    try:
        told, found = await asyncio.gather(report, visit.ask("GET", f"/v1{address}/{what}", query=query))
    except Refusal as refusal:
        if refusal.problem.status != 422:
            raise
        whole = (await visit.ask("GET", f"/v1{address}")).document
        return whole, {"items": [], "next": None}, {refusal.problem.field or "after": refusal.problem.detail}
    return told.document, found.document, {}


PAGES = {
    "/crawls/{crawl_id}/hosts": {"GET": hosts},
    "/crawls/{crawl_id}/urls": {"GET": urls},
    "/crawls/{crawl_id}/skips": {"GET": skips},
}
