"""Users: who may log in, and what they may do."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from weft.errors import Invalid
from weft.web.faults import faults
from weft.web.grants import grants_of, rows_of
from weft.web.inside import Refusal
from weft.web.pages.settings import USERS, tabs_of
from weft.web.rendering import Onward, Page
from weft.web.rights import ROLES
from weft.web.visit import Visit
from weft.web.words import N_

SAID = {
    "roles": N_("The roles are saved; all sessions of the user have ended."),
    "active": N_("The user may log in again."),
    "inactive": N_("The user may not log in any more; all sessions have ended."),
    "password": N_("The password is set; all sessions of the user have ended."),
}


ACTS = ("roles", "password", "activate", "deactivate")


async def listing(visit: Visit) -> Page:
    after = visit.query.get("after", "")
    found = (await visit.ask("GET", "/v1/users", query={"after": after} if after else {})).document
    more = "" if found["next"] is None else "/settings/users?" + urlencode({"after": found["next"]})
    users = [each | {"page": _page(each["name"])} for each in found["items"]]
    shown = {"users": users, "more": more, "first": "/settings/users" if after else ""}
    return Page("settings/users.html", shown | tabs_of(visit, USERS), found)


async def new(visit: Visit) -> Page:
    """The form for a new user."""
    return await _form(visit, {"name": "", "grants": {}})


async def create(visit: Visit) -> Page:
    """Make a user; a password that was made up is shown, once."""
    typed: dict[str, Any] = {"name": visit.form.get("name", "").strip(), "grants": grants_of(visit.form)}
    body = dict(typed)
    if password := visit.form.get("password", ""):
        body["password"] = password
    try:
        made = (await visit.ask("POST", "/v1/users", body=body)).document
    except Refusal as refusal:
        return await _form(visit, typed, errors=_beside(refusal, "password", "grants", "name"))
    shown = {"user": made["user"], "password": made["password"]}
    return Page("settings/user_made.html", shown | tabs_of(visit, USERS), made["user"])


async def detail(visit: Visit) -> Page:
    """One user, with the forms that change what they may do."""
    return await _detail(visit, said=SAID.get(visit.query.get("said", ""), ""))


async def act(visit: Visit) -> Page | Onward:
    """Save roles, let a user in or keep them out, or set a password."""
    address, verb = _address(visit), visit.form.get("act", "")
    if verb not in ACTS:
        raise Invalid("act", verb, f"it must be one of {', '.join(ACTS)}")
    try:
        if verb == "password":
            await visit.ask("PUT", f"/v1{address}/password", body={"password": visit.form.get("password", "")})
            return _done(visit, "password")
        if verb == "roles":
            seen = {"if-match": visit.form.get("seen", "*")}
            await visit.ask("PATCH", f"/v1{address}", body={"grants": grants_of(visit.form)}, headers=seen)
            return _done(visit, "roles")
        active = verb == "activate"
        await visit.ask("PATCH", f"/v1{address}", body={"active": active})
    except Refusal as refusal:
        return await _detail(visit, errors=_beside(refusal, "password", "grants", "user"))
    return _done(visit, "active" if active else "inactive")


def _beside(refusal: Refusal, *fields: str) -> dict[str, str]:
    found = faults(refusal, *fields)
    return {"grants": refusal.problem.detail} if "project" in (refusal.problem.field or "") else found


def _done(visit: Visit, word: str) -> Onward:
    return Onward(f"{_page(visit.path('name'))}?said={word}")


async def _detail(visit: Visit, *, said: str = "", errors: dict[str, str] | None = None) -> Page:
    answer = await visit.ask("GET", f"/v1{_address(visit)}")
    user = answer.document
    grants = grants_of(visit.form) if visit.form.get("act") == "roles" else user["grants"]
    seen = visit.form.get("seen") or answer.headers["etag"]
    shown = {"user": user, "seen": seen, "said": said, "errors": errors or {}}
    shown |= {"page": _page(user["name"]), "rows": rows_of(grants), "roles": ROLES, "projects": await _projects(visit)}
    return Page("settings/user.html", shown | tabs_of(visit, USERS), user, status=422 if errors else 200)


async def _form(visit: Visit, typed: dict[str, Any], *, errors: dict[str, str] | None = None) -> Page:
    shown = {"typed": typed, "errors": errors or {}, "rows": rows_of(typed["grants"]), "roles": ROLES}
    shown["projects"] = await _projects(visit)
    return Page("settings/user_form.html", shown | tabs_of(visit, USERS), typed, status=422 if errors else 200)


async def _projects(visit: Visit) -> list[str]:
    return [each["name"] for each in (await visit.ask("GET", "/v1/projects")).document["items"]]


def _page(name: str) -> str:
    """Where a user's page is. Names are the same in capital letters, so one who is called new has a page as well."""
    return "/settings/users/" + ("NEW" if name == "new" else quote(name, safe=""))


def _address(visit: Visit) -> str:
    return "/users/" + quote(visit.path("name"), safe="")


PAGES = {
    "/settings/users": {"GET": listing},
    "/settings/users/new": {"GET": new, "POST": create},
    "/settings/users/{name}": {"GET": detail, "POST": act},
}
