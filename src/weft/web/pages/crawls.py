"""Crawls of whole sites: how far each is, who does it, what was left out, and why an address is not there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from weft.crawls.trouble import left_behind
from weft.documents.crawls import ShareDocument
from weft.web.inside import Refusal
from weft.web.rendering import Live, Onward, Page
from weft.web.rights import may, may_somewhere
from weft.web.visit import Visit
from weft.web.words import N_

STATES = ("active", "paused", "done", "stopped")
SAID = {
    "begun": N_("It has begun; workers take shares of it as they are free."),
    "pause": N_("It rests; nothing is lost."),
    "resume": N_("It goes on where it was."),
    "stop": N_("It is stopped; what it has found stays."),
    "requeued": N_("What failed is in line again."),
    "deleted": N_("The crawl is forgotten; its items stay in their dataset."),
}
"""What a page says after something was done, by the word in its address."""
VERBS = ("pause", "resume", "stop")
SHOWN_HOSTS = 10
SHOWN_SHARES = 50
KINDS = ("crawl_", "run_started", "run_finished")


async def listing(visit: Visit) -> Page | Onward:
    """Crawls, newest first; a filter that cannot be is told beside its field. With ``run``, the crawl that it began."""
    if run := visit.query.get("run", ""):
        found = (await visit.ask("GET", "/v1/crawls", query={"run_id": run})).document["items"]
        return Onward(f"/crawls/{found[0]['id']}" if found else "/crawls")
    asked = {name: visit.query.get(name, "").strip() for name in ("state", "project", "after")}
    query = {name: value for name, value in asked.items() if value}
    errors: dict[str, str] = {}
    try:
        found = (await visit.ask("GET", "/v1/crawls", query=query)).document
    except Refusal as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        found, errors = {"items": [], "next": None}, {refusal.problem.field or "state": refusal.problem.detail}
    kept = {name: value for name, value in query.items() if name != "after"}
    older = "" if found["next"] is None else "/crawls?" + urlencode({**kept, "after": found["next"]})
    newest = ("/crawls?" + urlencode(kept)).rstrip("?") if asked["after"] else ""
    shown = {"crawls": found["items"], "asked": asked, "states": STATES, "errors": errors, "said": _said(visit)}
    shown |= {"older": older, "newest": newest, "may_begin": may_somewhere(visit.session, "developer")}
    live = None if errors or asked["after"] else Live(kinds=KINDS, every_seconds=3.0)
    return Page("crawls/list.html", shown, found, status=422 if errors else 200, live=live)


async def detail(visit: Visit) -> Page:
    """One crawl: progress, shares, hosts, what was left out, and the answer to one question."""
    return await _detail(visit)


async def _detail(visit: Visit, refusal: Refusal | None = None) -> Page:
    address, url = address_of(visit), visit.query.get("url", "").strip()
    report, pace, hosts, files = await asyncio.gather(
        visit.ask("GET", f"/v1{address}"),
        visit.ask("GET", f"/v1{address}/pace"),
        visit.ask("GET", f"/v1{address}/hosts", query={"limit": str(SHOWN_HOSTS)}),
        visit.ask("GET", f"/v1{address}/warcs"),
    )
    document = report.document | {"pace": pace.document["items"], "hosts": hosts.document}
    document |= {"warcs": files.document["items"]}
    why, errors = await _why(visit, address, url)
    if why is not None:
        document["why"] = why
    crawl = document["crawl"]
    shown: dict[str, Any] = document | {"url": url, "why": why, "errors": errors, "said": _said(visit)}
    shown |= {"chart": chart(document["pace"]), "total": document["left"] + pages_of(document["counts"])}
    shown |= {"pages": pages_of(document["counts"]), "most_shares": SHOWN_SHARES}
    spec = document["spec"]
    shown |= {"dataset": spec.get("dataset", "pages"), "brings_pages": brings_pages(spec)}
    shown |= {"may_act": may(visit.session, "operator", crawl["project"])}
    shown |= {"may_delete": may(visit.session, "developer", crawl["project"])}
    is_active, known = crawl["state"] == "active", document["hosts"]["items"]
    shown["troubled"] = troubled(known) if is_active else []
    shown["held_by_the_dead"] = held_by_the_dead(known, document["shares"]) if is_active else []
    shown["problem"] = "" if refusal is None else refusal.problem.detail
    status = 200 if refusal is None else refusal.problem.status
    live = Live(kinds=KINDS, every_seconds=2.0) if is_active else Live(kinds=("crawl_",))
    return Page("crawls/detail.html", shown, document, status=status, live=live)


async def _why(visit: Visit, address: str, url: str) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """What the API says of an address; what is no address is told beside the field."""
    if not url:
        return None, {}
    try:
        found: dict[str, Any] = (await visit.ask("GET", f"/v1{address}/why", query={"url": url})).document
    except Refusal as refusal:
        if refusal.problem.status != 422:
            raise
        return None, {"url": refusal.problem.detail}
    return found, {}


async def act(visit: Visit) -> Page | Onward:
    """Pause a crawl, let it go on, stop it, try once more what failed, or forget it."""
    address, verb = address_of(visit), visit.form.get("act", "")
    try:
        if verb == "delete":
            await visit.ask("DELETE", f"/v1{address}")
            return Onward("/crawls?said=deleted")
        if verb == "requeue":
            await visit.ask("POST", f"/v1{address}/requeue", body={"state": "failed"})
            return Onward(f"{address}?said=requeued")
        if verb in VERBS:
            await visit.ask("POST", f"/v1{address}/{verb}")
    except Refusal as refusal:
        if refusal.problem.status != 409:
            raise
        return await _detail(visit, refusal)
    return Onward(f"{address}?said={verb}" if verb in VERBS else address)


def troubled(hosts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hosts that do not answer, and whether they are left alone now; not those that have and are asked again soon."""
    found = [each | {"is_left_alone": is_to_come(each["next_at"])} for each in hosts if each["trouble"]]
    return [each for each in found if each["is_left_alone"] or not each["counts"]["done"]]


def held_by_the_dead(hosts: list[dict[str, Any]], shares: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hosts that wait for the end of a lease, because whoever had it was killed; with the run's number."""
    runs = msgspec.convert(shares, list[ShareDocument])
    gone = [each for each in hosts if is_to_come(each["leased_until"]) and left_behind(each["holder"], runs)]
    return [each | {"run_id": each["holder"].partition(":")[0]} for each in gone]


def is_to_come(at: str | None) -> bool:
    return at is not None and datetime.fromisoformat(at) > datetime.now(UTC)


def chart(pace: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The rate as a curve; None where there is too little to see."""
    if len(pace) < 2 or not any(each["pages_per_second"] for each in pace):
        return None
    x = [datetime.fromisoformat(each["at"]).timestamp() for each in pace]
    values = [each["pages_per_second"] for each in pace]
    return {"x": x, "series": [{"name": N_("Pages a second"), "values": values, "color": "blue", "fill": True}]}


def brings_pages(spec: dict[str, Any]) -> bool:
    """Whether its items are pages; spiders bring their own, and other addresses to begin with."""
    return bool(spec.get("urls") or spec.get("sitemaps") or spec.get("tier") == "fetch")


def pages_of(counts: dict[str, int]) -> int:
    return counts["done"] + counts["failed"]


def address_of(visit: Visit) -> str:
    return "/crawls/" + quote(visit.path("crawl_id"), safe="")


def _said(visit: Visit) -> str:
    return SAID.get(visit.query.get("said", ""), "")


PAGES = {
    "/crawls": {"GET": listing},
    "/crawls/{crawl_id}": {"GET": detail, "POST": act},
}
