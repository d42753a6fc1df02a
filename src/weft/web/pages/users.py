"""Users: who may log in, and what they may do."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from msgspec.structs import asdict

from weft.errors import Invalid
from weft.operations import projects, users
from weft.web.forms import field_errors, role_rows, typed_roles
from weft.web.pages.settings import USERS, tabs_of
from weft.web.rendering import Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ROLES, ApiError, Visit

MESSAGES = {
    "roles": N_("The roles are saved; all sessions of the user have ended."),
    "active": N_("The user may log in again."),
    "inactive": N_("The user may not log in any more; all sessions have ended."),
    "password": N_("The password is set; all sessions of the user have ended."),
}


ACTIONS = ("roles", "password", "activate", "deactivate")


async def listing(visit: Visit) -> WebPage:
    after = visit.query.get("after", "")
    found = await visit.call(users.list_, query={"after": after} if after else {})
    more = "" if found.next is None else "/settings/users?" + urlencode({"after": found.next})
    rows = [asdict(each) | {"page": _page(each.name)} for each in found.items]
    shown: dict[str, Any] = {"users": rows, "more": more, "first": "/settings/users" if after else ""}
    return WebPage("settings/users.html", shown | tabs_of(visit, USERS), found)


async def new(visit: Visit) -> WebPage:
    """The form for a new user."""
    return await _form(visit, {"name": "", "grants": {}})


async def create(visit: Visit) -> WebPage:
    """Make a user; a password that was made up is shown, once."""
    typed: dict[str, Any] = {"name": visit.form.get("name", "").strip(), "grants": typed_roles(visit.form)}
    body = dict(typed)
    if password := visit.form.get("password", ""):
        body["password"] = password
    try:
        made = await visit.call(users.create, body=body)
    except ApiError as refusal:
        return await _form(visit, typed, errors=_beside(refusal, "password", "grants", "name"))
    shown = {"user": made.user, "password": made.password}
    return WebPage("settings/user_made.html", shown | tabs_of(visit, USERS), made.user)


async def detail(visit: Visit) -> WebPage:
    """One user, with the forms that change what they may do."""
    return await _detail(visit, said=MESSAGES.get(visit.query.get("said", ""), ""))


async def act(visit: Visit) -> WebPage | Redirect:
    """Save roles, let a user in or keep them out, or set a password."""
    name, verb = visit.path("name"), visit.form.get("act", "")
    if verb not in ACTIONS:
        raise Invalid("act", verb, f"it must be one of {', '.join(ACTIONS)}")
    try:
        if verb == "password":
            await visit.call(users.set_password, name=name, body={"password": visit.form.get("password", "")})
            return _done(visit, "password")
        if verb == "roles":
            seen = {"if-match": visit.form.get("seen", "*")}
            await visit.call(users.change, name=name, body={"grants": typed_roles(visit.form)}, sent=seen)
            return _done(visit, "roles")
        active = verb == "activate"
        await visit.call(users.change, name=name, body={"active": active})
    except ApiError as refusal:
        return await _detail(visit, errors=_beside(refusal, "password", "grants", "user"))
    return _done(visit, "active" if active else "inactive")


def _beside(refusal: ApiError, *fields: str) -> dict[str, str]:
    found = field_errors(refusal, *fields)
    return {"grants": refusal.problem.detail} if "project" in (refusal.problem.field or "") else found


def _done(visit: Visit, word: str) -> Redirect:
    return Redirect(f"{_page(visit.path('name'))}?said={word}")


async def _detail(visit: Visit, *, said: str = "", errors: dict[str, str] | None = None) -> WebPage:
    user, headers = await visit.call_with_headers(users.show, name=visit.path("name"))
    grants = typed_roles(visit.form) if visit.form.get("act") == "roles" else user.grants
    seen = visit.form.get("seen") or headers["ETag"]
    shown = {"user": user, "seen": seen, "said": said, "errors": errors or {}}
    shown |= {"page": _page(user.name), "rows": role_rows(grants), "roles": ROLES, "projects": await _projects(visit)}
    return WebPage("settings/user.html", shown | tabs_of(visit, USERS), user, status=422 if errors else 200)


async def _form(visit: Visit, typed: dict[str, Any], *, errors: dict[str, str] | None = None) -> WebPage:
    shown = {"typed": typed, "errors": errors or {}, "rows": role_rows(typed["grants"]), "roles": ROLES}
    shown["projects"] = await _projects(visit)
    return WebPage("settings/user_form.html", shown | tabs_of(visit, USERS), typed, status=422 if errors else 200)


async def _projects(visit: Visit) -> list[str]:
    return [each.name for each in (await visit.call(projects.list_)).items]


def _page(name: str) -> str:
    """Where a user's page is. Names are the same in capital letters, so one who is called new has a page as well."""
    return "/settings/users/" + ("NEW" if name == "new" else quote(name, safe=""))


PAGES = {
    "/settings/users": {"GET": listing},
    "/settings/users/new": {"GET": new, "POST": create},
    "/settings/users/{name}": {"GET": detail, "POST": act},
}
