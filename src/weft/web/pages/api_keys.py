"""Keys: how programs say who they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import asdict

from weft.access.model import KeyDocument
from weft.errors import Invalid
from weft.operations import projects, users
from weft.web.forms import field_errors, role_rows, typed_roles
from weft.web.pages.settings import KEYS, tabs_of
from weft.web.rendering import Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import EVERYWHERE, ROLES, ApiError, Visit, may, projects_of

LIVES = ("30", "90", "365", "")
"""How many days a key may count; empty: until it is revoked."""
MESSAGES = {"revoked": N_("The key does not count any more.")}


async def listing(visit: Visit) -> WebPage:
    """One's own keys, and those of projects where one is admin."""
    after = visit.query.get("after", "")
    found = await visit.call(users.list_keys, query={"after": after} if after else {})
    more = "" if found.next is None else "/settings/keys?" + urlencode({"after": found.next})
    shown: dict[str, Any] = {"keys": [_with_state(each) for each in found.items], "more": more}
    shown |= {"first": "/settings/keys" if after else "", "said": MESSAGES.get(visit.query.get("said", ""), "")}
    return WebPage("settings/keys.html", shown | tabs_of(visit, KEYS), found)


def _with_state(key: KeyDocument) -> dict[str, Any]:
    expired = key.expires_at is not None and datetime.fromisoformat(key.expires_at) <= datetime.now(UTC)
    state = "revoked" if key.revoked_at is not None else "expired" if expired else "active"
    return asdict(key) | {"state": state}


async def new(visit: Visit) -> WebPage:
    """The form for a new key."""
    place = EVERYWHERE if may(visit.session, "viewer") else next(iter(projects_of(visit.session, "viewer")), "")
    typed = {"name": "", "days": "90", "public_key": "", "grants": {place: "viewer"} if place else {}}
    return await _form(visit, typed)


async def create(visit: Visit) -> WebPage:
    """Make a key, and show its token, once."""
    typed: dict[str, Any] = {name: visit.form.get(name, "").strip() for name in ("name", "days", "public_key")}
    typed["grants"] = typed_roles(visit.form)
    body: dict[str, Any] = {"name": typed["name"], "grants": typed["grants"]}
    body |= {"public_key": typed["public_key"]} if typed["public_key"] else {}
    if typed["days"] not in LIVES:
        raise Invalid("days", typed["days"], f"it must be one of {', '.join(LIVES[:-1])}, or empty")
    if typed["days"]:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=int(typed["days"]))).isoformat()
    try:
        made = await visit.call(users.create_key, body=body)
    except ApiError as refusal:
        return await _form(visit, typed, errors=_beside(visit, refusal, typed["grants"]))
    shown = {"key": made.key, "token_once": made.token}
    return WebPage("settings/key_made.html", shown | tabs_of(visit, KEYS), made.key)


def _beside(visit: Visit, refusal: ApiError, grants: dict[str, str]) -> dict[str, str]:
    """What is wrong with a new key, such as roles that its maker has not."""
    too_much = [place for place, role in grants.items() if role in ROLES and not may(visit.session, role, place)]
    if (refusal.problem.status == 403 and too_much) or "project" in (refusal.problem.field or ""):
        return {"grants": refusal.problem.detail}
    return field_errors(refusal, "grants", "role", "public_key", "expires_at", "name")


async def _form(visit: Visit, typed: dict[str, Any], *, errors: dict[str, str] | None = None) -> WebPage:
    known = (await visit.call(projects.list_)).items
    shown = {"typed": typed, "errors": errors or {}, "rows": role_rows(typed["grants"]), "roles": ROLES}
    shown |= {"projects": [each.name for each in known], "lives": LIVES}
    return WebPage("settings/key_form.html", shown | tabs_of(visit, KEYS), typed, status=422 if errors else 200)


async def revoke(visit: Visit) -> Redirect:
    """Revoke a key, for good and at once."""
    await visit.call(users.revoke_key, key_id=visit.path("key_id"))
    return Redirect("/settings/keys?said=revoked")


async def detail(visit: Visit) -> WebPage:
    """One key, and the button that revokes it."""
    key = await visit.call(users.show_key, key_id=visit.path("key_id"))
    shown = {"key": _with_state(key)}
    return WebPage("settings/key.html", shown | tabs_of(visit, KEYS), key)


PAGES = {
    "/settings/keys": {"GET": listing},
    "/settings/keys/new": {"GET": new, "POST": create},
    "/settings/keys/{key_id}": {"GET": detail, "POST": revoke},
}
