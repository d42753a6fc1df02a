"""The web site: an ASGI application around the gateway. Pages are its own, everything else goes on to the gateway."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from weft.api.door import host_names
from weft.api.gateway import add_headers, request_id_of
from weft.api.guards import Hosts, check_head
from weft.api.problems import Problem, Refused, problem_of
from weft.app import App
from weft.errors import WeftError
from weft.web import look
from weft.web.assets import assets
from weft.web.frame import around
from weft.web.inside import Refusal
from weft.web.pages import letters, overview, runs, session
from weft.web.rendering import Onward, Page, compressed
from weft.web.screens import LIVE, Screens
from weft.web.visit import Visit, read_form

log = logging.getLogger(__name__)

Handle = Callable[[Visit], Awaitable[Page | Onward | Response]]

LOGIN = "/login"
OPEN = frozenset({session.login_page, session.log_in, look.choose})
"""Pages for people who are not logged in."""
PAGES: dict[str, dict[str, Handle]] = {}
"""Every page: what its address shows, and what a form that is sent there does. A page with ``.json`` at its end is the
same for programs."""
for _noun in (overview, runs, letters, session, look):
    PAGES |= _noun.PAGES
FIXED = {path: methods for path, methods in PAGES.items() if "{" not in path}
PATTERNS = [(compile_path(path)[0], methods) for path, methods in PAGES.items() if "{" in path]
FOR_EVER = "public, max-age=31536000, immutable"
JSON = ".json"


class Site:
    """Answers people; ``api`` answers everybody else."""

    def __init__(self, app: App, api: ASGIApp) -> None:
        self._api, self._hosts = api, Hosts(host_names(app.config))
        self._screens = Screens(app.tail, self.page_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == LIVE:
            await self._screens.converse(WebSocket(scope, receive, send), self._hosts, self._api)
            return
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

    async def page_of(self, visit: Visit, path: str) -> Page | Onward | Response:
        """What the page at ``path`` shows to somebody."""
        handle, values = _found(visit.request.method, path)
        visit.request.scope["path_params"] = values
        if visit.request.method == "POST":
            visit.form = await read_form(visit.request)
        if handle not in OPEN:
            await visit.know_session()
        return await handle(visit)

    async def _answer(self, request: Request, visit: Visit) -> Response:
        path = request.scope["path"]
        wants_json = path.endswith(JSON)
        accepted = request.headers.get("accept-encoding", "")
        try:
            check_head(request)
            self._hosts.check(request)
            if path in assets():
                return _asset(path, accepted)
            shown = await self.page_of(visit, path.removesuffix(JSON))
        except ClientDisconnect:
            raise
        except Exception as error:
            shown = _problem_page(error, visit, wants_json=wants_json)
        return _response(shown, visit, wants_json=wants_json, accepted=accepted)


def is_page(path: str) -> bool:
    """Whether an address is one of a page, or of what pages are made of."""
    return path.startswith("/static/") or _methods(path.removesuffix(JSON)) is not None


def _methods(path: str) -> tuple[dict[str, Handle], dict[str, str]] | None:
    if path in FIXED:
        return FIXED[path], {}
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


def _asset(path: str, accepted: str) -> Response:
    asset = assets()[path]
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    if asset.compressed is not None and "gzip" in accepted:
        return Response(asset.compressed, 200, {**headers, "Content-Encoding": "gzip"}, asset.media_type)
    return Response(asset.content, 200, headers, asset.media_type)


def _response(shown: Page | Onward | Response, visit: Visit, *, wants_json: bool, accepted: str) -> Response:
    if isinstance(shown, Onward):
        return shown.response(visit.prefix)
    if isinstance(shown, Response):
        return shown
    return compressed(shown.as_json() if wants_json else shown.as_html(**around(visit)), accepted)


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
        return "/"
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])


def _problem(error: Exception, visit: Visit) -> tuple[Problem, dict[str, str]]:
    if isinstance(error, Refusal):
        kept = ("retry-after", "allow", "www-authenticate")
        return error.problem, {name: error.headers[name] for name in kept if name in error.headers}
    if not isinstance(error, WeftError):
        log.exception("a page failed", extra={"request_id": visit.request_id, "path": visit.request.scope["path"]})
    return problem_of(error, visit.request_id)
