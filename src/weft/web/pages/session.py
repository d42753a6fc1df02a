"""Logging in and out."""

from __future__ import annotations

from weft.api.onward import HOME, local
from weft.web.inside import Refusal
from weft.web.rendering import Onward, Page
from weft.web.visit import Visit
from weft.web.words import N_

SAID = {"password": N_("The password is changed. Log in with the new one.")}


async def login_page(visit: Visit) -> Page | Onward:
    """The form to log in with; who is logged in already goes on."""
    after = local(visit.query.get("next", HOME))
    try:
        await visit.know_session()
    except Refusal:
        return await _form(visit, after)
    return Onward(after)


async def log_in(visit: Visit) -> Page | Onward:
    """Begin a session. How often passwords may be tried, the API knows."""
    name, after = visit.form.get("name", ""), local(visit.form.get("next", HOME))
    asked = {"name": name, "password": visit.form.get("password", ""), "next": after}
    try:
        answer = await visit.ask("POST", "/v1/session", body=asked)
    except Refusal as refusal:
        return await _form(visit, after, name=name, refusal=refusal)
    return Onward(after, {"Set-Cookie": answer.headers["set-cookie"]})


async def log_out(visit: Visit) -> Page | Onward:
    answer = await visit.ask("DELETE", "/v1/session")
    return Onward("/login", {"Set-Cookie": answer.headers["set-cookie"]})


async def _form(visit: Visit, after: str, *, name: str = "", refusal: Refusal | None = None) -> Page:
    problem = None if refusal is None else refusal.problem
    errors = {} if problem is None else {problem.field or "password": problem.detail}
    headers = {} if refusal is None else {each: refusal.headers[each] for each in _KEPT if each in refusal.headers}
    has_users = (await visit.ask("GET", "/v1/session/first")).document["has_users"]
    said = SAID.get(visit.query.get("said", ""), "")
    shown = {"next": after, "name": name, "errors": errors, "has_users": has_users, "said": said}
    document = {"next": after} if problem is None else problem
    return Page("login.html", shown, document, status=200 if problem is None else problem.status, headers=headers)


_KEPT = ("retry-after", "www-authenticate")

PAGES = {"/login": {"GET": login_page, "POST": log_in}, "/logout": {"POST": log_out}}
