"""The web site: an ASGI application around the gateway. Pages are its own, everything else goes on to the gateway."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from weft.app import App
from weft.http.access_log import note_route
from weft.http.application import host_names
from weft.http.gateway import add_headers, request_id_of
from weft.http.guards import AllowedHosts, check_head
from weft.http.performer import Performer
from weft.operations.problems import Problem, RequestRefused, log_problem, problem_of
from weft.web import layout
from weft.web.assets import assets
from weft.web.layout import MENU, layout_values, noun_of
from weft.web.live_pages import LIVE, LivePages
from weft.web.pages import (
    account,
    api_keys,
    crawls,
    datasets,
    dead_letters,
    guest_links,
    items,
    overview,
    projects,
    rerun,
    run,
    run_log,
    runs,
    schedules,
    search,
    settings,
    spiders,
    task_forms,
    tasks,
    users,
    versions,
    webhooks,
    workers,
)
from weft.web.pages.guest_links import GUEST_PREFIX, without_token
from weft.web.rendering import Redirect, WebPage, compressed
from weft.web.visit import ApiError, Visit, read_form

log = logging.getLogger(__name__)

LOGIN = "/login"
LONG_FIELDS = ("body", "text", "spec", "command", "args", "params", "schema", "settings", "more", "after", "tags")
KEPT_HEADERS = ("retry-after", "allow", "www-authenticate")


async def problem_page(error: Exception, visit: Visit, *, wants_json: bool) -> WebPage | Redirect:
    """Why there is nothing to show, with what was typed; who is not logged in is asked to do so, and comes back."""
    problem, headers = _problem(error, visit)
    path, typed = str(visit.request.scope["path"]), _typed_texts(visit.form)
    is_guest = path.startswith(GUEST_PREFIX)
    if problem.status == 401 and not typed and not wants_json and path != LOGIN:
        return Redirect(f"{LOGIN}?next={quote(_page_before_login(visit.request), safe='')}")
    if not visit.session and not is_guest:
        await _try_to_authenticate(visit)
    ways = [entry for group in MENU for entry in group if entry.noun in (noun_of(path), "overview")]
    shown = {"problem": problem, "typed": typed, "ways": ways[::-1], "for_guests": is_guest}
    return WebPage("problem.html", shown, problem, status=problem.status, headers=headers)


def _typed_texts(form: Mapping[str, str]) -> str:
    """The texts of a form that somebody may have written at for long."""
    return "\n\n".join(form[name] for name in LONG_FIELDS if form.get(name, "").strip())


def page_missing(path: str) -> RequestRefused:
    return RequestRefused("not_found", f"there is nothing at {path[:200]}")


async def _try_to_authenticate(visit: Visit) -> None:
    """A problem has the menu around it for those who are logged in."""
    try:
        await visit.know_session()
    except ApiError:
        pass


def _page_before_login(request: Request) -> str:
    """Where somebody was when they were asked to log in."""
    if request.method not in ("GET", "HEAD"):
        return "/"
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])


def _problem(error: Exception, visit: Visit) -> tuple[Problem, dict[str, str]]:
    if isinstance(error, ApiError):
        return error.problem, {name: error.headers[name] for name in KEPT_HEADERS if name in error.headers}
    log_problem(error, visit.request_id, path=without_token(visit.request.scope["path"]))
    return problem_of(error, visit.request_id)


PageHandler = Callable[[Visit], Awaitable[WebPage | Redirect | Response]]

PUBLIC_PAGES = frozenset({account.login_page, account.log_in, layout.choose_appearance, *guest_links.GUEST_HANDLERS})
"""Pages for people who are not logged in."""
PAGES: dict[str, dict[str, PageHandler]] = {}
"""Every page: what its address shows, and what a form that is sent there does. A page with ``.json`` at its end is the
same for programs."""
for _noun in (
    overview,
    runs,
    run,
    rerun,
    dead_letters,
    account,
    layout,
    search,
    guest_links,
    run_log,
    workers,
    webhooks,
    settings,
    api_keys,
    users,
    items,
    datasets,
    projects,
    versions,
    spiders,
    tasks,
    task_forms,
    schedules,
    crawls,
):
    PAGES |= _noun.PAGES
FIXED = frozenset(path for path in PAGES if "{" not in path)
PATTERNS = [(compile_path(path)[0], path) for path in PAGES if "{" in path]
FOR_EVER = "public, max-age=31536000, immutable"
JSON = ".json"


class WebSite:
    """Answers people; ``api`` answers everybody else."""

    def __init__(self, app: App, api: ASGIApp, performer: Performer) -> None:
        self._api, self._performer, self._hosts = api, performer, AllowedHosts(host_names(app.config))
        self.screens = LivePages(app.tail, self.page_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == LIVE:
            note_route(scope, LIVE)
            await self.screens.converse(WebSocket(scope, receive, send), self._hosts, self._api, self._performer)
            return
        if scope["type"] != "http":
            await self._api(scope, receive, send)
            return
        if not is_page(scope["path"]) and not await self._pass_on(scope, receive, send):
            return
        request = Request(scope, receive)
        request_id = request_id_of(request)
        try:
            response = await self._answer(request, Visit(request, self._api, self._performer, request_id))
        except ClientDisconnect:
            return
        add_headers(response, request_id, is_https=scope["scheme"] == "https")
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Let the gateway answer; True where it has nothing at this address and a person looks, who is shown a page."""
        if not _is_person(scope):
            await self._api(scope, receive, send)
            return False
        swallowed = False

        async def watch(message: Message) -> None:
            nonlocal swallowed
            if message["type"] == "http.response.start":
                swallowed = message["status"] == 404
            if not swallowed:
                await send(message)

        await self._api(scope, receive, watch)
        return swallowed

    async def page_of(self, visit: Visit, path: str) -> WebPage | Redirect | Response:
        """What the page at ``path`` shows to somebody."""
        handle, values = _found(visit.request, path)
        visit.request.scope["path_params"] = values
        if visit.request.method == "POST" and handle not in versions.UPLOADS | task_forms.UPLOADS:
            visit.form = await read_form(visit.request)
        if handle not in PUBLIC_PAGES:
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
                note_route(request.scope, "/static/{file}")
                return _asset(path, accepted)
            shown = await self.page_of(visit, path.removesuffix(JSON))
            return _response(shown, visit, wants_json=wants_json, accepted=accepted)
        except ClientDisconnect:
            raise
        except Exception as error:
            problem = await problem_page(error, visit, wants_json=wants_json)
        return _response(problem, visit, wants_json=wants_json, accepted=accepted)


def is_page(path: str) -> bool:
    """Whether an address is one of a page, or of what pages are made of."""
    return path.startswith("/static/") or _route(path.removesuffix(JSON)) is not None


def _is_person(scope: Scope) -> bool:
    """Whether somebody with a browser asks for a page, and no program for a document."""
    accept = dict(scope["headers"]).get(b"accept", b"")
    return scope["method"] == "GET" and b"text/html" in accept and not scope["path"].startswith("/v1/")


def _route(path: str) -> tuple[str, dict[str, str]] | None:
    """Which of the pages an address names, and the values in it."""
    if path in FIXED:
        return path, {}
    for pattern, route in PATTERNS:
        if match := pattern.fullmatch(path):
            return route, match.groupdict()
    return None


def _found(request: Request, path: str) -> tuple[PageHandler, dict[str, str]]:
    found = _route(path)
    if found is None:
        raise page_missing(path)
    route, values = found
    note_route(request.scope, route)
    methods, method = PAGES[route], request.method
    handle = methods.get("GET" if method == "HEAD" else method)
    if handle is None:
        allow = ", ".join(sorted(methods))
        raise RequestRefused("method_not_allowed", f"{path[:200]} takes {allow}", allow=allow)
    return handle, values


def _asset(path: str, accepted: str) -> Response:
    asset = assets()[path]
    if not asset.is_there:
        raise page_missing(path)
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    if asset.compressed is not None and "gzip" in accepted:
        return Response(asset.compressed, 200, {**headers, "Content-Encoding": "gzip"}, asset.media_type)
    return Response(asset.content, 200, headers, asset.media_type)


def _response(shown: WebPage | Redirect | Response, visit: Visit, *, wants_json: bool, accepted: str) -> Response:
    if isinstance(shown, Redirect):
        return shown.response(visit.prefix)
    if isinstance(shown, Response):
        return shown
    return compressed(shown.as_json() if wants_json else shown.as_html(**layout_values(visit)), accepted)
