"""Keys: how programs say who they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from weft.errors import Invalid
from weft.web.faults import faults
from weft.web.grants import grants_of, rows_of
from weft.web.inside import Refusal
from weft.web.pages.settings import KEYS, tabs_of
from weft.web.rendering import Onward, Page
from weft.web.rights import EVERYWHERE, ROLES, may, projects_of
from weft.web.visit import Visit
from weft.web.words import N_

LIVES = ("30", "90", "365", "")
"""How many days a key may count; empty: until it is revoked."""
SAID = {"revoked": N_("The key does not count any more.")}


async def listing(visit: Visit) -> Page:
    """One's own keys, and those of projects where one is admin."""
    after = visit.query.get("after", "")
    found = (await visit.ask("GET", "/v1/keys", query={"after": after} if after else {})).document
    more = "" if found["next"] is None else "/settings/keys?" + urlencode({"after": found["next"]})
    shown = {"keys": [each | {"state": _state(each)} for each in found["items"]], "more": more}
    shown |= {"first": "/settings/keys" if after else "", "said": SAID.get(visit.query.get("said", ""), "")}
    return Page("settings/keys.html", shown | tabs_of(visit, KEYS), found)


def _state(key: dict[str, Any]) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    expired = key["expires_at"] is not None and datetime.fromisoformat(key["expires_at"]) <= datetime.now(UTC)
    return "expired" if expired else "active"


async def new(visit: Visit) -> Page:
    """The form for a new key."""
    place = EVERYWHERE if may(visit.session, "viewer") else next(iter(projects_of(visit.session, "viewer")), "")
    typed = {"name": "", "days": "90", "public_key": "", "grants": {place: "viewer"} if place else {}}
    return await _form(visit, typed)


async def create(visit: Visit) -> Page:
    """Make a key, and show its token, once."""
    typed: dict[str, Any] = {name: visit.form.get(name, "").strip() for name in ("name", "days", "public_key")}
    typed["grants"] = grants_of(visit.form)
    body: dict[str, Any] = {"name": typed["name"], "grants": typed["grants"]}
    body |= {"public_key": typed["public_key"]} if typed["public_key"] else {}
    if typed["days"] not in LIVES:
        raise Invalid("days", typed["days"], f"it must be one of {', '.join(LIVES[:-1])}, or empty")
    if typed["days"]:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=int(typed["days"]))).isoformat()
    try:
        made = (await visit.ask("POST", "/v1/keys", body=body)).document
    except Refusal as refusal:
        return await _form(visit, typed, errors=_beside(visit, refusal, typed["grants"]))
    shown = {"key": made["key"], "token_once": made["token"]}
    return Page("settings/key_made.html", shown | tabs_of(visit, KEYS), made["key"])


def _beside(visit: Visit, refusal: Refusal, grants: dict[str, str]) -> dict[str, str]:
    """What is wrong with a new key, such as roles that its maker has not."""
    too_much = [place for place, role in grants.items() if role in ROLES and not may(visit.session, role, place)]
    if (refusal.problem.status == 403 and too_much) or "project" in (refusal.problem.field or ""):
        return {"grants": refusal.problem.detail}
    return faults(refusal, "grants", "role", "public_key", "expires_at", "name")


async def _form(visit: Visit, typed: dict[str, Any], *, errors: dict[str, str] | None = None) -> Page:
    projects = (await visit.ask("GET", "/v1/projects")).document["items"]
    shown = {"typed": typed, "errors": errors or {}, "rows": rows_of(typed["grants"]), "roles": ROLES}
    shown |= {"projects": [each["name"] for each in projects], "lives": LIVES}
    return Page("settings/key_form.html", shown | tabs_of(visit, KEYS), typed, status=422 if errors else 200)


async def revoke(visit: Visit) -> Onward:
    """Revoke a key, for good and at once."""
    await visit.ask("DELETE", "/v1/keys/" + quote(visit.path("key_id"), safe=""))
    return Onward("/settings/keys?said=revoked")


async def detail(visit: Visit) -> Page:
    """One key, and the button that revokes it."""
    key = (await visit.ask("GET", "/v1/keys/" + quote(visit.path("key_id"), safe=""))).document
    shown = {"key": key | {"state": _state(key)}}
    return Page("settings/key.html", shown | tabs_of(visit, KEYS), key)


PAGES = {
    "/settings/keys": {"GET": listing},
    "/settings/keys/new": {"GET": new, "POST": create},
    "/settings/keys/{key_id}": {"GET": detail, "POST": revoke},
}
