"""Webhooks: addresses that are told what happens, and what was sent to each."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from weft.events import KINDS
from weft.operations import paging, webhooks
from weft.web.forms import field_errors
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import EVERYWHERE, ApiError, Visit, may, may_somewhere, projects_of

STATES = ("waiting", "delivered", "given_up")
MESSAGES = {
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


async def listing(visit: Visit) -> WebPage:
    """The webhooks of the projects that the reader administers."""
    asked = visit.query.get("project", "").strip()
    errors = {}
    try:
        found = await visit.call(webhooks.list_, query={"project": asked} if asked else {})
    except ApiError as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        found, errors = paging.Page(items=[]), {"project": refusal.problem.detail}
    shown: dict[str, Any] = {"webhooks": found.items, "project": asked, "errors": errors, "said": _said(visit)}
    shown["is_admin"] = may_somewhere(visit.session, "admin")
    live = None if errors else LiveRefresh(kinds=("breaker_",), every_seconds=10.0)
    return WebPage("webhooks/list.html", shown, found, status=422 if errors else 200, live=live)


async def new(visit: Visit) -> WebPage:
    """The form for a new webhook."""
    return _form(visit, {"url": "", "project": visit.query.get("project", _first_project(visit)), "kinds": []})


async def create(visit: Visit) -> WebPage:
    """Make a webhook, and show its secret, once."""
    typed = _typed(visit)
    try:
        made = await visit.call(webhooks.create, body=typed)
    except ApiError as refusal:
        if refusal.problem.status == 403 and not may(visit.session, "admin", typed["project"]):
            return _form(visit, typed, errors={"project": refusal.problem.detail})
        return _form(visit, typed, errors=field_errors(refusal, "project", "kinds", "url"))
    return WebPage("webhooks/made.html", {"webhook": made.webhook, "secret": made.secret}, made.webhook)


async def edit_page(visit: Visit) -> WebPage:
    """The form with what the webhook is now."""
    webhook, headers = await visit.call_with_headers(webhooks.show, webhook_id=_id(visit))
    return _form(visit, msgspec.to_builtins(webhook), seen=headers["ETag"])


async def edit(visit: Visit) -> WebPage | Redirect:
    """Save what was typed, if nobody else has changed the webhook meanwhile."""
    typed, seen = _typed(visit), visit.form.get("seen", "")
    body = {"url": typed["url"], "kinds": typed["kinds"]}
    try:
        await visit.call(webhooks.change, webhook_id=_id(visit), body=body, sent={"if-match": seen})
    except ApiError as refusal:
        before = msgspec.to_builtins(await visit.call(webhooks.show, webhook_id=_id(visit)))
        return _form(visit, before | body, seen=seen, errors=field_errors(refusal, "kinds", "url"))
    return Redirect(f"{_address(visit)}?said=saved")


async def detail(visit: Visit) -> WebPage:
    """One webhook, and what it was sent, newest first."""
    asked = {name: visit.query.get(name, "").strip() for name in ("state", "after")}
    query = {name: value for name, value in asked.items() if value}
    address = _address(visit)
    webhook, log = await asyncio.gather(
        visit.call(webhooks.show, webhook_id=_id(visit)),
        visit.call(webhooks.deliveries, webhook_id=_id(visit), query=query),
    )
    older = "" if log.next is None else f"{address}?" + urlencode({**query, "after": log.next})
    newest = f"{address}?" + urlencode({"state": asked["state"]}) if asked["after"] else ""
    shown: dict[str, Any] = {"webhook": webhook, "deliveries": log.items, "asked": asked, "states": STATES}
    shown |= {"older": older, "newest": newest, "said": _said(visit)}
    shown |= {"may_change": may(visit.session, "admin", webhook.project)}
    document = msgspec.to_builtins(webhook) | {"deliveries": log}
    live = None if asked["after"] else LiveRefresh(kinds=("breaker_",), every_seconds=5.0)
    return WebPage("webhooks/detail.html", shown, document, live=live)


async def act(visit: Visit) -> Redirect:
    """Enable, disable or delete a webhook, or send something once more."""
    address, verb = _address(visit), visit.form.get("act", "")
    if verb in CHANGES:
        body, word = CHANGES[verb]
        await visit.call(webhooks.change, webhook_id=_id(visit), body=body)
        return Redirect(f"{address}?said={word}")
    if verb == "delete":
        await visit.call(webhooks.delete, webhook_id=_id(visit))
        return Redirect("/webhooks?said=deleted")
    await visit.call(webhooks.replay, webhook_id=_id(visit), delivery_id=visit.form.get("delivery", ""))
    return Redirect(f"{address}?said=replayed")


def _form(visit: Visit, typed: dict[str, Any], *, seen: str = "", errors: dict[str, str] | None = None) -> WebPage:
    shown = {"typed": typed, "errors": errors or {}, "seen": seen, "kinds": MEANINGS, "is_new": "id" not in typed}
    shown["is_admin"] = may_somewhere(visit.session, "admin")
    return WebPage("webhooks/form.html", shown, typed, status=422 if errors else 200)


def _typed(visit: Visit) -> dict[str, Any]:
    project = visit.form.get("project", "").strip() or EVERYWHERE
    return {"url": visit.form.get("url", "").strip(), "project": project, "kinds": visit.form.every("kinds")}


def _first_project(visit: Visit) -> str:
    """Where a new webhook belongs unless something else is said: everywhere, or a project of the reader."""
    mine = projects_of(visit.session, "admin")
    return EVERYWHERE if may(visit.session, "admin") or not mine else mine[0]


def _said(visit: Visit) -> str:
    return MESSAGES.get(visit.query.get("said", ""), "")


def _id(visit: Visit) -> str:
    return visit.path("webhook_id")


def _address(visit: Visit) -> str:
    return "/webhooks/" + quote(_id(visit), safe="")


PAGES = {
    "/webhooks": {"GET": listing},
    "/webhooks/new": {"GET": new, "POST": create},
    "/webhooks/{webhook_id}": {"GET": detail, "POST": act},
    "/webhooks/{webhook_id}/edit": {"GET": edit_page, "POST": edit},
}
