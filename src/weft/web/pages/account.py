"""Log in and out, and one's own account: roles, password, sessions."""

from __future__ import annotations

from weft.operations import sessions
from weft.operations.sessions import HOME_PATH, local_path
from weft.web.forms import field_errors, translated
from weft.web.rendering import Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit

LOGIN_MESSAGES = {"password": N_("The password is changed. Log in with the new one.")}


async def login_page(visit: Visit) -> WebPage | Redirect:
    """The form to log in with; who is logged in already goes on."""
    after = local_path(visit.query.get("next", HOME_PATH))
    try:
        await visit.know_session()
    except ApiError:
        return await _form(visit, after)
    return Redirect(after)


async def log_in(visit: Visit) -> WebPage | Redirect:
    """Begin a session. How often passwords may be tried, the API knows."""
    name, after = visit.form.get("name", ""), local_path(visit.form.get("next", HOME_PATH))
    asked = {"name": name, "password": visit.form.get("password", ""), "next": after}
    try:
        _, headers = await visit.call_with_headers(sessions.start, body=asked, sent=visit.request.headers)
    except ApiError as refusal:
        return await _form(visit, after, name=name, refusal=refusal)
    return Redirect(after, {"Set-Cookie": headers["Set-Cookie"]})


async def log_out(visit: Visit) -> WebPage | Redirect:
    _, headers = await visit.call_with_headers(sessions.end)
    return Redirect("/login", {"Set-Cookie": headers["Set-Cookie"]})


async def _form(visit: Visit, after: str, *, name: str = "", refusal: ApiError | None = None) -> WebPage:
    problem = None if refusal is None else refusal.problem
    errors = {} if problem is None else {problem.field or "password": problem.detail}
    headers = {} if refusal is None else {each: refusal.headers[each] for each in _KEPT if each in refusal.headers}
    has_users = (await visit.call(sessions.first)).has_users
    said = LOGIN_MESSAGES.get(visit.query.get("said", ""), "")
    shown = {"next": after, "name": name, "errors": errors, "has_users": has_users, "said": said}
    document = {"next": after} if problem is None else problem
    return WebPage("login.html", shown, document, status=200 if problem is None else problem.status, headers=headers)


_KEPT = ("retry-after", "www-authenticate")

LOGIN_PAGES = {"/login": {"GET": login_page, "POST": log_in}, "/logout": {"POST": log_out}}


ACCOUNT_MESSAGES = {"ended": N_("The session has ended; whoever used it is logged out.")}


async def account(visit: Visit) -> WebPage:
    return await _account(visit, said=ACCOUNT_MESSAGES.get(visit.query.get("said", ""), ""))


async def change_password(visit: Visit) -> WebPage | Redirect:
    """Give oneself another password; all sessions end, so one logs in again."""
    new = visit.form.get("new", "")
    if new != visit.form.get("again", ""):
        return await _account(visit, errors={"again": translated(visit, N_("The two new passwords are not the same."))})
    body = {"current": visit.form.get("current", ""), "new": new}
    try:
        _, headers = await visit.call_with_headers(sessions.change_password, body=body)
    except ApiError as refusal:
        wrong = field_errors(refusal, "current", "new")
        if refusal.problem.status == 429:  # it is about the password that was guessed at
            wrong = {"current": refusal.problem.detail}
        return await _account(visit, errors=wrong)
    return Redirect("/login?next=%2Faccount&said=password", {"Set-Cookie": headers["Set-Cookie"]})


async def end_session(visit: Visit) -> Redirect:
    """End one session, or all of them."""
    if visit.form.get("act") == "all":
        _, headers = await visit.call_with_headers(sessions.end_all)
        return Redirect("/login?next=%2Faccount", {"Set-Cookie": headers["Set-Cookie"]})
    try:
        await visit.call(sessions.end_session, session_id=visit.form.get("session", ""))
    except ApiError as refusal:
        if refusal.problem.status != 404:  # one that has ended already is as it was wanted
            raise
    return Redirect("/account?said=ended")


async def _account(visit: Visit, *, said: str = "", errors: dict[str, str] | None = None) -> WebPage:
    is_person = visit.session["kind"] == "user"
    found = (await visit.call(sessions.list_sessions)).items if is_person else []
    shown = {"sessions": found, "said": said, "errors": errors or {}, "is_person": is_person}
    told = {name: visit.session[name] for name in ("kind", "name", "grants", "ends_at") if name in visit.session}
    return WebPage("account/account.html", shown, told | {"sessions": found}, status=422 if errors else 200)


ACCOUNT_PAGES = {
    "/account": {"GET": account},
    "/account/password": {"POST": change_password},
    "/account/sessions": {"POST": end_session},
}

PAGES = LOGIN_PAGES | ACCOUNT_PAGES
