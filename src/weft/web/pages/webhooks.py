"""Webhooks: addresses that are told what happens, and what was sent to each."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote, urlencode

from weft.events import KINDS
from weft.web.faults import faults
from weft.web.inside import Refusal
from weft.web.rendering import Live, Onward, Page
from weft.web.rights import EVERYWHERE, may, may_somewhere, projects_of
from weft.web.visit import Visit
from weft.web.words import N_

STATES = ("waiting", "delivered", "given_up")
SAID = {
    "saved": N_("The webhook is saved."),
    "enabled": N_("It is told what happens from now on."),
    "disabled": N_("It is told nothing of what happens meanwhile."),
    "replayed": N_("It is sent again, under the same number."),
    "deleted": N_("The webhook and the log of its deliveries are gone."),
}
"""What a page says after something was done, by the word in its address."""
MEANINGS = {kind: meaning.partition("; data:")[0] for kind, meaning in KINDS.items()}
"""What each kind of event says; what data it has is for programs."""
CHANGES = {"enable": ({"active": True}, "enabled"), "disable": ({"active": False}, "disabled")}


async def listing(visit: Visit) -> Page:
    """The webhooks of the projects that the reader administers."""
    asked = visit.query.get("project", "").strip()
    errors = {}
    try:
        found = (await visit.ask("GET", "/v1/webhooks", query={"project": asked} if asked else {})).document
    except Refusal as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        found, errors = {"items": [], "next": None}, {"project": refusal.problem.detail}
    shown = {"webhooks": found["items"], "project": asked, "errors": errors, "said": _said(visit)}
    shown["is_admin"] = may_somewhere(visit.session, "admin")
    live = None if errors else Live(kinds=("breaker_",), every_seconds=10.0)
    return Page("webhooks/list.html", shown, found, status=422 if errors else 200, live=live)


async def new(visit: Visit) -> Page:
    """The form for a new webhook."""
    return _form(visit, {"url": "", "project": visit.query.get("project", _first_project(visit)), "kinds": []})


async def create(visit: Visit) -> Page:
    """Make a webhook, and show its secret, once."""
    typed = _typed(visit)
    try:
        made = (await visit.ask("POST", "/v1/webhooks", body=typed)).document
    except Refusal as refusal:
        if refusal.problem.status == 403 and not may(visit.session, "admin", typed["project"]):
            return _form(visit, typed, errors={"project": refusal.problem.detail})
        return _form(visit, typed, errors=faults(refusal, "project", "kinds", "url"))
    return Page("webhooks/made.html", {"webhook": made["webhook"], "secret": made["secret"]}, made["webhook"])


async def edit_page(visit: Visit) -> Page:
    """The form with what the webhook is now."""
    answer = await visit.ask("GET", f"/v1{_address(visit)}")
    return _form(visit, answer.document, seen=answer.headers["etag"])


async def edit(visit: Visit) -> Page | Onward:
    """Save what was typed, if nobody else has changed the webhook meanwhile."""
    typed, seen = _typed(visit), visit.form.get("seen", "")
    body = {"url": typed["url"], "kinds": typed["kinds"]}
    try:
        await visit.ask("PATCH", f"/v1{_address(visit)}", body=body, headers={"if-match": seen})
    except Refusal as refusal:
        before = (await visit.ask("GET", f"/v1{_address(visit)}")).document
        return _form(visit, before | body, seen=seen, errors=faults(refusal, "kinds", "url"))
    return Onward(f"{_address(visit)}?said=saved")


async def detail(visit: Visit) -> Page:
    """One webhook, and what it was sent, newest first."""
    asked = {name: visit.query.get(name, "").strip() for name in ("state", "after")}
    query = {name: value for name, value in asked.items() if value}
    address = _address(visit)
    webhook, log = await asyncio.gather(
        visit.ask("GET", f"/v1{address}"), visit.ask("GET", f"/v1{address}/deliveries", query=query)
    )
    deliveries = log.document
    older = "" if deliveries["next"] is None else f"{address}?" + urlencode({**query, "after": deliveries["next"]})
    newest = f"{address}?" + urlencode({"state": asked["state"]}) if asked["after"] else ""
    shown = {"webhook": webhook.document, "deliveries": deliveries["items"], "asked": asked, "states": STATES}
    shown |= {
        "older": older,
        "newest": newest,
        "said": _said(visit),
        "may_change": _may_change(visit, webhook.document),
    }
    document = webhook.document | {"deliveries": deliveries}
    live = None if asked["after"] else Live(kinds=("breaker_",), every_seconds=5.0)
    return Page("webhooks/detail.html", shown, document, live=live)


async def act(visit: Visit) -> Onward:
    """Enable, disable or delete a webhook, or send something once more."""
    address, verb = _address(visit), visit.form.get("act", "")
    if verb in CHANGES:
        body, word = CHANGES[verb]
        await visit.ask("PATCH", f"/v1{address}", body=body)
        return Onward(f"{address}?said={word}")
    if verb == "delete":
        await visit.ask("DELETE", f"/v1{address}")
        return Onward("/webhooks?said=deleted")
    delivery = quote(visit.form.get("delivery", ""), safe="")
    await visit.ask("POST", f"/v1{address}/deliveries/{delivery}/replay")
    return Onward(f"{address}?said=replayed")


def _form(visit: Visit, typed: dict[str, Any], *, seen: str = "", errors: dict[str, str] | None = None) -> Page:
    shown = {"typed": typed, "errors": errors or {}, "seen": seen, "kinds": MEANINGS, "is_new": "id" not in typed}
    shown["is_admin"] = may_somewhere(visit.session, "admin")
    return Page("webhooks/form.html", shown, typed, status=422 if errors else 200)


def _typed(visit: Visit) -> dict[str, Any]:
    project = visit.form.get("project", "").strip() or EVERYWHERE
    return {"url": visit.form.get("url", "").strip(), "project": project, "kinds": visit.form.every("kinds")}


def _may_change(visit: Visit, webhook: dict[str, Any]) -> bool:
    return may(visit.session, "admin", webhook["project"])


def _first_project(visit: Visit) -> str:
    """Where a new webhook belongs unless something else is said: everywhere, or a project of the reader."""
    mine = projects_of(visit.session, "admin")
    return EVERYWHERE if may(visit.session, "admin") or not mine else mine[0]


def _said(visit: Visit) -> str:
    return SAID.get(visit.query.get("said", ""), "")


def _address(visit: Visit) -> str:
    return "/webhooks/" + quote(visit.path("webhook_id"), safe="")


PAGES = {
    "/webhooks": {"GET": listing},
    "/webhooks/new": {"GET": new, "POST": create},
    "/webhooks/{webhook_id}": {"GET": detail, "POST": act},
    "/webhooks/{webhook_id}/edit": {"GET": edit_page, "POST": edit},
}
