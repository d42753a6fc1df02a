"""The web site: an ASGI application around the gateway. Pages are its own, everything else goes on to the gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from weft.api.door import host_names
from weft.api.gateway import add_headers, request_id_of
from weft.api.guards import Hosts, check_head
from weft.api.problems import Refused
from weft.app import App
from weft.web import look
from weft.web.assets import assets
from weft.web.frame import around
from weft.web.pages import (
    administration,
    crawl_addresses,
    crawl_forms,
    crawls,
    dataset_settings,
    datasets,
    deploying,
    find,
    guest,
    items,
    letters,
    log,
    overview,
    projects,
    run,
    run_again,
    runs,
    schedules,
    session,
    shares,
    spiders,
    task_files,
    task_forms,
    task_graph,
    tasks,
)
from weft.web.problems import missing, problem_page
from weft.web.rendering import Onward, Page, compressed
from weft.web.screens import LIVE, Screens
from weft.web.visit import Visit, read_form

Handle = Callable[[Visit], Awaitable[Page | Onward | Response]]

OPEN = frozenset({session.login_page, session.log_in, look.choose, *guest.HANDLES})
"""Pages for people who are not logged in."""
PAGES: dict[str, dict[str, Handle]] = {}
"""Every page: what its address shows, and what a form that is sent there does. A page with ``.json`` at its end is the
same for programs."""
for _noun in (
    overview,
    runs,
    run,
    run_again,
    letters,
    session,
    look,
    find,
    guest,
    shares,
    log,
    administration,
    items,
    datasets,
    dataset_settings,
    projects,
    deploying,
    spiders,
    tasks,
    task_forms,
    task_files,
    task_graph,
    schedules,
    crawls,
    crawl_forms,
    crawl_addresses,
):
    PAGES |= _noun.PAGES
FIXED = {path: methods for path, methods in PAGES.items() if "{" not in path}
PATTERNS = [(compile_path(path)[0], methods) for path, methods in PAGES.items() if "{" in path]
FOR_EVER = "public, max-age=31536000, immutable"
JSON = ".json"


class Site:
    """Answers people; ``api`` answers everybody else."""

    def __init__(self, app: App, api: ASGIApp) -> None:
        self._api, self._hosts = api, Hosts(host_names(app.config))
        self.screens = Screens(app.tail, self.page_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == LIVE:
            await self.screens.converse(WebSocket(scope, receive, send), self._hosts, self._api)
            return
        if scope["type"] != "http":
            await self._api(scope, receive, send)
            return
        if not is_page(scope["path"]) and not await self._pass_on(scope, receive, send):
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

    async def page_of(self, visit: Visit, path: str) -> Page | Onward | Response:
        """What the page at ``path`` shows to somebody."""
        handle, values = _found(visit.request.method, path)
        visit.request.scope["path_params"] = values
        if visit.request.method == "POST" and handle not in deploying.UPLOADS | task_files.UPLOADS:
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
            return _response(shown, visit, wants_json=wants_json, accepted=accepted)
        except ClientDisconnect:
            raise
        except Exception as error:
            problem = await problem_page(error, visit, wants_json=wants_json)
        return _response(problem, visit, wants_json=wants_json, accepted=accepted)


def is_page(path: str) -> bool:
    """Whether an address is one of a page, or of what pages are made of."""
    return path.startswith("/static/") or _methods(path.removesuffix(JSON)) is not None


def _is_person(scope: Scope) -> bool:
    """Whether somebody with a browser asks for a page, and no program for a document."""
    accept = dict(scope["headers"]).get(b"accept", b"")
    return scope["method"] == "GET" and b"text/html" in accept and not scope["path"].startswith("/v1/")


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
        raise missing(path)
    methods, values = found
    handle = methods.get("GET" if method == "HEAD" else method)
    if handle is None:
        allow = ", ".join(sorted(methods))
        raise Refused("method_not_allowed", f"{path[:200]} takes {allow}", allow=allow)
    return handle, values


def _asset(path: str, accepted: str) -> Response:
    asset = assets()[path]
    if not asset.is_there:
        raise missing(path)
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
