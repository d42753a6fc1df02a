"""The web site: an ASGI application around the gateway. Pages are its own, everything else goes on to the gateway."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.api.door import host_names
from weft.api.gateway import add_headers, request_id_of
from weft.api.guards import Hosts, check_head
from weft.api.problems import Problem, Refused, problem_of
from weft.app import App
from weft.errors import WeftError
from weft.web.inside import Refusal
from weft.web.pages import letters, session
from weft.web.rendering import Onward, Page, static, static_addresses
from weft.web.visit import Visit, read_form

log = logging.getLogger(__name__)

Handle = Callable[[Visit], Awaitable[Page | Onward]]

FIRST = "/letters"
LOGIN = "/login"
OPEN = frozenset({session.login_page, session.log_in})
"""Pages for people who are not logged in."""
PAGES: dict[str, dict[str, Handle]] = {
    LOGIN: {"GET": session.login_page, "POST": session.log_in},
    "/logout": {"POST": session.log_out},
    FIRST: {"GET": letters.listing},
    "/letters/{letter_id}": {"GET": letters.detail, "POST": letters.act},
}
"""Every page: what its address shows, and what a form that is sent there does. A page with ``.json`` at its end is the
same for programs."""
PATTERNS = [(compile_path(path)[0], methods) for path, methods in PAGES.items()]
FOR_EVER = "public, max-age=31536000, immutable"
JSON = ".json"


class Site:
    """Answers people; ``api`` answers everybody else."""

    def __init__(self, app: App, api: ASGIApp) -> None:
        self._api, self._hosts = api, Hosts(host_names(app.config))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_page(scope["path"]):
            await self._api(scope, receive, send)
            return
        request = Request(scope, receive)
        request_id = request_id_of(request)
        try:
            response = await self._answer(request, Visit(request, self._api, request_id))
        except ClientDisconnect:
            return
        add_headers(response, request_id, is_https=scope["scheme"] == "https")
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _answer(self, request: Request, visit: Visit) -> Response:
        path = request.scope["path"]
        wants_json = path.endswith(JSON)
        try:
            check_head(request)
            self._hosts.check(request)
            if path == "/":
                return Onward(FIRST).response(visit.prefix)
            if path in static():
                content, media_type = static()[path]
                return Response(content, 200, {"Cache-Control": FOR_EVER}, media_type)
            return _response(await self._shown(visit, path.removesuffix(JSON)), visit, wants_json=wants_json)
        except ClientDisconnect:
            raise
        except Exception as error:
            return _response(_problem_page(error, visit, wants_json=wants_json), visit, wants_json=wants_json)

    async def _shown(self, visit: Visit, path: str) -> Page | Onward:
        handle, values = _found(visit.request.method, path)
        visit.request.scope["path_params"] = values
        if visit.request.method == "POST":
            visit.form = await read_form(visit.request)
        if handle not in OPEN:
            await visit.know_session()
        return await handle(visit)


def is_page(path: str) -> bool:
    """Whether an address is one of a page, or of what pages are made of."""
    return path == "/" or path.startswith("/static/") or _methods(path.removesuffix(JSON)) is not None


def _methods(path: str) -> tuple[dict[str, Handle], dict[str, str]] | None:
    for pattern, methods in PATTERNS:
        if match := pattern.fullmatch(path):
            return methods, match.groupdict()
    return None


def _found(method: str, path: str) -> tuple[Handle, dict[str, str]]:
    found = _methods(path)
    if found is None:
        raise Refused("not_found", f"there is nothing at {path[:200]}")
    methods, values = found
    handle = methods.get("GET" if method == "HEAD" else method)
    if handle is None:
        allow = ", ".join(sorted(methods))
        raise Refused("method_not_allowed", f"{path[:200]} takes {allow}", allow=allow)
    return handle, values


def _response(shown: Page | Onward, visit: Visit, *, wants_json: bool) -> Response:
    if isinstance(shown, Onward):
        return shown.response(visit.prefix)
    around = {"root": visit.prefix, "static": static_addresses(), "session": visit.session}
    return shown.as_json() if wants_json else shown.as_html(**around)


def _problem_page(error: Exception, visit: Visit, *, wants_json: bool) -> Page | Onward:
    """Why there is nothing to show, with what was typed; who is not logged in is asked to do so, and comes back."""
    problem, headers = _problem(error, visit)
    typed = visit.form.get("body", "")
    if problem.status == 401 and not typed and not wants_json and visit.request.scope["path"] != LOGIN:
        return Onward(f"{LOGIN}?next={quote(_back(visit.request), safe='')}")
    return Page("problem.html", {"problem": problem, "typed": typed}, problem, status=problem.status, headers=headers)


def _back(request: Request) -> str:
    """Where somebody was when they were asked to log in."""
    if request.method not in ("GET", "HEAD"):
        return FIRST
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])


def _problem(error: Exception, visit: Visit) -> tuple[Problem, dict[str, str]]:
    if isinstance(error, Refusal):
        kept = ("retry-after", "allow", "www-authenticate")
        return error.problem, {name: error.headers[name] for name in kept if name in error.headers}
    if not isinstance(error, WeftError):
        log.exception("a page failed", extra={"request_id": visit.request_id, "path": visit.request.scope["path"]})
    return problem_of(error, visit.request_id)
