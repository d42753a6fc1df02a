"""One's own account: roles, password, where one is logged in, and how pages look."""

from __future__ import annotations

from urllib.parse import quote

from weft.web.faults import faults, say
from weft.web.inside import Refusal
from weft.web.rendering import Onward, Page
from weft.web.visit import Visit
from weft.web.words import N_

SAID = {"ended": N_("The session has ended; whoever used it is logged out.")}


async def account(visit: Visit) -> Page:
    return await _account(visit, said=SAID.get(visit.query.get("said", ""), ""))


async def change_password(visit: Visit) -> Page | Onward:
    """Give oneself another password; all sessions end, so one logs in again."""
    new = visit.form.get("new", "")
    if new != visit.form.get("again", ""):
        return await _account(visit, errors={"again": say(visit, N_("The two new passwords are not the same."))})
    body = {"current": visit.form.get("current", ""), "new": new}
    try:
        answer = await visit.ask("PUT", "/v1/session/password", body=body)
    except Refusal as refusal:
        wrong = faults(refusal, "current", "new")
        if refusal.problem.status == 429:  # it is about the password that was guessed at
            wrong = {"current": refusal.problem.detail}
        return await _account(visit, errors=wrong)
    return Onward("/login?next=%2Faccount&said=password", {"Set-Cookie": answer.headers["set-cookie"]})


async def end_session(visit: Visit) -> Onward:
    """End one session, or all of them."""
    if visit.form.get("act") == "all":
        answer = await visit.ask("DELETE", "/v1/sessions")
        return Onward("/login?next=%2Faccount", {"Set-Cookie": answer.headers["set-cookie"]})
    try:
        await visit.ask("DELETE", "/v1/sessions/" + quote(visit.form.get("session", ""), safe=""))
    except Refusal as refusal:
        if refusal.problem.status != 404:  # one that has ended already is as it was wanted
            raise
    return Onward("/account?said=ended")


async def _account(visit: Visit, *, said: str = "", errors: dict[str, str] | None = None) -> Page:
    is_person = visit.session["kind"] == "user"
    sessions = (await visit.ask("GET", "/v1/sessions")).document["items"] if is_person else []
    shown = {"sessions": sessions, "said": said, "errors": errors or {}, "is_person": is_person}
    told = {name: visit.session[name] for name in ("kind", "name", "grants", "ends_at") if name in visit.session}
    return Page("account/account.html", shown, told | {"sessions": sessions}, status=422 if errors else 200)


PAGES = {
    "/account": {"GET": account},
    "/account/password": {"POST": change_password},
    "/account/sessions": {"POST": end_session},
}
