"""The audit log: who did what, from where, to which thing."""

from __future__ import annotations

import json
from datetime import date
from typing import Any
from urllib.parse import urlencode

from weft.web.inside import Refusal
from weft.web.pages.settings import AUDIT, tabs_of
from weft.web.rendering import Page
from weft.web.rights import may, may_somewhere
from weft.web.visit import Visit
from weft.web.words import N_

FILTERS = ("project", "actor", "action", "target", "since", "refused", "after")
REFUSED = (("", N_("all calls")), ("true", N_("refused ones")), ("false", N_("the others")))


async def listing(visit: Visit) -> Page:
    """What was changed, newest first; also what was refused."""
    asked = {name: visit.query.get(name, "").strip() for name in FILTERS}
    query = {name: value for name, value in asked.items() if value}
    errors: dict[str, str] = {}
    if asked["since"]:
        query["since"] = _moment(asked["since"])
    found: dict[str, Any] = {"items": [], "next": None}
    try:
        found = (await visit.ask("GET", "/v1/audit", query=query)).document
    except Refusal as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        errors = {refusal.problem.field or "project": refusal.problem.detail}
    kept = {name: value for name, value in asked.items() if value and name != "after"}
    older = "" if found["next"] is None else "/settings/audit?" + urlencode({**kept, "after": found["next"]})
    entries = [each | {"laid_out": json.dumps(each["data"], indent=2, ensure_ascii=False)} for each in found["items"]]
    shown: dict[str, Any] = {"entries": entries, "asked": asked, "errors": errors, "refused": REFUSED, "older": older}
    shown["newest"] = "/settings/audit?" + urlencode(kept) if asked["after"] else ""
    shown |= {"may_verify": may(visit.session, "admin"), "is_admin": may_somewhere(visit.session, "admin")}
    return Page("settings/audit.html", shown | tabs_of(visit, AUDIT), found, status=422 if errors else 200)


def _moment(typed: str) -> str:
    """A day is its first moment; anything else the API decides on."""
    try:
        return f"{date.fromisoformat(typed).isoformat()}T00:00:00Z"
    except ValueError:
        return typed


async def verify(visit: Visit) -> Page:
    """Follow the chain of digests, and say whether every entry is as it was written."""
    found = (await visit.ask("GET", "/v1/audit/verify")).document
    return Page("settings/verified.html", {"found": found} | tabs_of(visit, AUDIT), found)


PAGES = {"/settings/audit": {"GET": listing}, "/settings/audit/verify": {"GET": verify}}
