"""Why there is nothing to show, as a page that says where to go instead."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from urllib.parse import quote

from starlette.requests import Request

from weft.api.problems import Problem, Refused, problem_of
from weft.errors import WeftError
from weft.web.inside import Refusal
from weft.web.menu import MENU, noun_of
from weft.web.pages.guest import GUEST, hidden
from weft.web.rendering import Onward, Page
from weft.web.visit import Visit

log = logging.getLogger(__name__)

LOGIN = "/login"
LONG = ("body", "text", "spec", "command", "args", "params", "schema", "settings", "more", "after", "tags")
KEPT = ("retry-after", "allow", "www-authenticate")


async def problem_page(error: Exception, visit: Visit, *, wants_json: bool) -> Page | Onward:
    """Why there is nothing to show, with what was typed; who is not logged in is asked to do so, and comes back."""
    problem, headers = _problem(error, visit)
    path, typed = str(visit.request.scope["path"]), _typed(visit.form)
    is_guest = path.startswith(GUEST)
    if problem.status == 401 and not typed and not wants_json and path != LOGIN:
        return Onward(f"{LOGIN}?next={quote(_back(visit.request), safe='')}")
    if not visit.session and not is_guest:
        await _try_to_know(visit)
    ways = [entry for group in MENU for entry in group if entry.noun in (noun_of(path), "overview")]
    shown = {"problem": problem, "typed": typed, "ways": ways[::-1], "for_guests": is_guest}
    return Page("problem.html", shown, problem, status=problem.status, headers=headers)


def _typed(form: Mapping[str, str]) -> str:
    """The texts of a form that somebody may have written at for long."""
    return "\n\n".join(form[name] for name in LONG if form.get(name, "").strip())


def missing(path: str) -> Refused:
    return Refused("not_found", f"there is nothing at {path[:200]}")


async def _try_to_know(visit: Visit) -> None:
    """A problem has the menu around it for those who are logged in."""
    try:
        await visit.know_session()
    except Refusal:
        pass


def _back(request: Request) -> str:
    """Where somebody was when they were asked to log in."""
    if request.method not in ("GET", "HEAD"):
        return "/"
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])


def _problem(error: Exception, visit: Visit) -> tuple[Problem, dict[str, str]]:
    if isinstance(error, Refusal):
        return error.problem, {name: error.headers[name] for name in KEPT if name in error.headers}
    if not isinstance(error, WeftError):
        path = hidden(visit.request.scope["path"])
        log.exception("a page failed", extra={"request_id": visit.request_id, "path": path})
    return problem_of(error, visit.request_id)
