"""Links for guests to a project: which there are, a new one, and the end of one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from weft.errors import Invalid
from weft.web.inside import Refusal
from weft.web.rendering import Onward, Page
from weft.web.visit import Visit
from weft.web.words import N_

EXPIRIES = (("7", N_("In 7 days")), ("30", N_("In 30 days")), ("365", N_("In a year")), ("", N_("Never")))
MOST_DATASETS = "200"
"""That can be chosen from."""
SAID = {"revoked": N_("The link is revoked: from now on it shows nothing.")}
"""What the page says after something was done, by the word in its address."""


async def listing(visit: Visit) -> Page:
    return await _listing(visit, said=SAID.get(visit.query.get("said", ""), ""))


async def act(visit: Visit) -> Page | Onward:
    """Make a link, or revoke one. A new link is shown in the answer itself, which no address can ask for again."""
    if share := visit.form.get("revoke", ""):
        await visit.ask("DELETE", f"/v1/shares/{quote(share, safe='')}")
        return Onward(f"{_address(visit)}?said=revoked")
    days = visit.form.get("expires", "")
    body: dict[str, Any] = {"project": visit.path("project"), "label": visit.form.get("label", "").strip()}
    body["dataset"] = visit.form.get("dataset") or None
    if days not in dict(EXPIRIES):
        raise Invalid("expires", days, "it must be 7, 30 or 365 days, or empty")
    if days:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=int(days))).isoformat()
    try:
        made = (await visit.ask("POST", "/v1/shares", body=body)).document
    except Refusal as refusal:
        if refusal.problem.status not in (404, 409, 422):
            raise
        field = "dataset" if refusal.problem.status == 404 else refusal.problem.field or "label"
        return await _listing(visit, errors={field: refusal.problem.detail})
    return await _listing(visit, made=made)


async def _listing(
    visit: Visit, *, said: str = "", made: Mapping[str, Any] | None = None, errors: Mapping[str, str] | None = None
) -> Page:
    project, after = visit.path("project"), visit.query.get("after", "")
    query = {"project": project, "limit": "50"} | ({"after": after} if after else {})
    shares, datasets = await asyncio.gather(
        visit.ask("GET", "/v1/shares", query=query),
        visit.ask("GET", "/v1/datasets", query={"project": project, "limit": MOST_DATASETS}),
    )
    found, now = shares.document, datetime.now(UTC).isoformat()
    for each in found["items"]:
        each["state"] = _state(each, now)
    typed = {name: visit.form.get(name, "30" if name == "expires" else "") for name in ("label", "dataset", "expires")}
    if made is not None:
        typed = {"label": "", "dataset": "", "expires": "30"}
    link = "" if made is None else _origin(visit) + visit.prefix + made["path"]
    shown = {"project": project, "shares": found["items"], "link": link, "said": said, "errors": errors or {}}
    shown |= {"datasets": [each["name"] for each in datasets.document["items"]], "typed": typed, "expiries": EXPIRIES}
    shown |= {"older": f"{_address(visit)}?after={quote(found['next'])}" if found["next"] else ""}
    shown |= {"newest": _address(visit) if after else "", "page": _address(visit)}
    return Page("shares/list.html", shown, found, status=422 if errors else 201 if made else 200)


def _state(share: Mapping[str, Any], now: str) -> str:
    if share["revoked_at"] is not None:
        return "revoked"
    return "expired" if share["expires_at"] is not None and share["expires_at"] <= now else "valid"


def _origin(visit: Visit) -> str:
    return f"{visit.request.scope['scheme']}://{visit.request.headers['host']}"


def _address(visit: Visit) -> str:
    return f"/projects/{quote(visit.path('project'), safe='')}/shares"


PAGES = {"/projects/{project}/shares": {"GET": listing, "POST": act}}
