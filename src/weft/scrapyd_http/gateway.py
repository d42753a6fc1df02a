"""The door for Scrapyd's clients: finds what an address stands for, who asks, and answers as Scrapyd does.

On weft's own port it stands before the gateway and takes only what is Scrapyd's; on a port of its own everything is.
Who asks is told by ``Authorization`` alone: a browser's session does not count here, so no page elsewhere can use it.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.access.model import EVERYWHERE, Caller, Role
from weft.app import App
from weft.errors import BlobsDown, DatabaseDown, NotAllowed, NotFound, Rejected, TooManyLogins, Unknown, WeftError
from weft.http.access_log import known_method, note_caller, note_route
from weft.http.authentication import Authenticator, address_of, is_local
from weft.http.gateway import add_headers, request_id_of
from weft.http.guards import AllowedHosts, check_head
from weft.http.limits import ConcurrencyLimit, RateLimit, limit_key
from weft.metrics import REQUEST_SECONDS, REQUESTS
from weft.operations.problems import RequestRefused, log_problem, problem_of
from weft.redaction import redacted
from weft.scrapyd_http import endpoints, pages, requests
from weft.scrapyd_http.files import JobFileHandlers
from weft.scrapyd_http.requests import HiddenProject, ScrapydError, ScrapydRequest, audit_denial, query_of, read_form

ScrapydHandler = Callable[[ScrapydRequest], Awaitable[Response]]

SLASHES = re.compile(r"/{2,}")
OWN_STATUS = (RequestRefused, TooManyLogins, DatabaseDown, BlobsDown)
"""Refusals that are no answers of Scrapyd's, so that their status is not that of success."""
ALLOWED_CALLERS = frozenset({"user", "key"})


@dataclass(frozen=True, slots=True)
class ScrapydEndpoint:
    """An address whose answer is JSON."""

    method: str
    handle: ScrapydHandler
    takes_egg: bool = False


ENDPOINTS: Mapping[str, ScrapydEndpoint] = {
    "/daemonstatus.json": ScrapydEndpoint("GET", endpoints.daemonstatus),
    "/listprojects.json": ScrapydEndpoint("GET", endpoints.listprojects),
    "/listversions.json": ScrapydEndpoint("GET", endpoints.listversions),
    "/listspiders.json": ScrapydEndpoint("GET", endpoints.listspiders),
    "/listjobs.json": ScrapydEndpoint("GET", endpoints.listjobs),
    "/status.json": ScrapydEndpoint("GET", endpoints.status),
    "/schedule.json": ScrapydEndpoint("POST", endpoints.schedule),
    "/cancel.json": ScrapydEndpoint("POST", endpoints.cancel),
    "/addversion.json": ScrapydEndpoint("POST", endpoints.addversion, takes_egg=True),
    "/delversion.json": ScrapydEndpoint("POST", endpoints.delversion),
    "/delproject.json": ScrapydEndpoint("POST", endpoints.delproject),
}

PAGES = frozenset({"/", "/jobs", "/logs", "/items"})
"""The first part of the address of each page and file, for GET."""


class ScrapydGateway:
    """An ASGI application. What is not Scrapyd's goes to ``inner``, where there is one."""

    def __init__(
        self, app: App, callers: Authenticator, hosts: AllowedHosts, rates: RateLimit, inner: ASGIApp | None = None
    ) -> None:
        self._app, self._callers, self._hosts, self._rates, self._inner = app, callers, hosts, rates, inner
        self._node_name = app.config.scrapyd_node_name or socket.gethostname()
        self._places = {method: ConcurrencyLimit(app.config.requests_at_once) for method in ("GET", "POST")}
        files = JobFileHandlers(app)
        self._pages: Mapping[str, ScrapydHandler] = {
            "/": pages.home,
            "/jobs": pages.jobs,
            "/logs": files.logs,
            "/items": files.items,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = SLASHES.sub("/", scope.get("path", ""))
        if self._inner is not None and (scope["type"] != "http" or not is_scrapyd_path(path)):
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        request, began = Request(scope, receive), time.monotonic()
        request_id = request_id_of(request)
        try:
            response = await self._answer(request, path, request_id)
        except ClientDisconnect:
            return
        add_headers(response, request_id, is_https=scope["scheme"] == "https")
        self._measure(request.method, response.status_code, time.monotonic() - began)
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _answer(self, request: Request, path: str, request_id: str) -> Response:
        endpoint = ENDPOINTS.get(path)
        try:
            check_head(request)
            self._hosts.check(request)
            if endpoint is not None or first_part(path) in PAGES:
                note_route(request.scope, path if endpoint is not None else first_part(path))
            caller = await self._caller(request)
            note_caller(request.scope, caller)
            self._rates.check(limit_key(caller))
            asked = ScrapydRequest(self._app, caller, request.method, path, request, self._node_name)
            with self._places["POST" if request.method == "POST" else "GET"].taken(limit_key(caller)):
                response = await (self._page(asked) if endpoint is None else self._called(endpoint, asked))
        except ClientDisconnect:
            raise
        except Unknown:
            return requests.unauthorized()
        except Exception as problem:
            if endpoint is None and isinstance(problem, NotFound):
                return requests.not_found()
            response = self._refusal(problem, request_id)
        if endpoint is not None:
            requests.add_cors(response, endpoint.method)
        return response

    async def _caller(self, request: Request) -> Caller:
        """Who asks. This machine itself may do without a password, where it was set up so, but no page on it."""
        caller = await self._callers.by_header(request)
        foreign = self._callers.is_foreign(request)
        if caller is None and self._app.config.scrapyd_open and is_local(request) and not foreign:
            grants = {EVERYWHERE: Role.DEVELOPER}
            return Caller(name="this machine", kind="key", grants=grants, address=address_of(request))
        if caller is None:
            raise Unknown("this needs a name and a password, or a key")
        if caller.kind not in ALLOWED_CALLERS:
            raise NotAllowed(f"a {caller.kind} may not call Scrapyd's API")
        if foreign and request.method != "GET":
            raise NotAllowed("a page of another site may not do this; only pages of this weft may")
        return caller

    async def _called(self, endpoint: ScrapydEndpoint, asked: ScrapydRequest) -> Response:
        if asked.method == "OPTIONS":
            return requests.options()
        if asked.method != endpoint.method and (asked.method, endpoint.method) != ("HEAD", "GET"):
            raise ScrapydError(f"UnsupportedMethod: Expected one of [b'HEAD', b'OPTIONS', b'{endpoint.method}']")
        asked.values = query_of(asked.request.scope["query_string"])
        with ExitStack() as held:
            if asked.method == "POST":
                await self._read(endpoint, asked, held)
            try:
                return await endpoint.handle(asked)
            except (NotAllowed, HiddenProject) as problem:
                await audit_denial(asked, problem)
                raise

    async def _read(self, endpoint: ScrapydEndpoint, asked: ScrapydRequest, held: ExitStack) -> None:
        """Read the form. Of somebody who may not deploy anywhere, no egg is taken in."""
        file, projects = None, asked.app.projects
        if endpoint.takes_egg:
            if max(asked.caller.grants.values(), default=Role.VIEWER) < Role.DEVELOPER:
                raise NotAllowed(f"{asked.caller.name} may not do this: it needs the role {Role.DEVELOPER.label}")
            file = held.enter_context(projects.incoming.place("scrapyd")) / "egg"
        has_egg = await read_form(asked.request, asked.values, file, projects.largest_bytes)
        asked.egg = file if has_egg else None

    async def _page(self, asked: ScrapydRequest) -> Response:
        page = self._pages.get(first_part(asked.path))
        if page is None:
            return requests.not_found()
        if asked.method not in ("GET", "HEAD"):
            return requests.not_allowed()
        asked.values = query_of(asked.request.scope["query_string"])
        return await page(asked)

    def _refusal(self, problem: Exception, request_id: str) -> Response:
        if isinstance(problem, ScrapydError):
            return requests.error(self._node_name, str(problem))
        if isinstance(problem, WeftError) and not isinstance(problem, OWN_STATUS):
            return requests.error(self._node_name, _error_text(problem))
        log_problem(problem, request_id)
        document, headers = problem_of(problem, request_id)
        return requests.error(self._node_name, document.detail, document.status, headers)

    def _measure(self, method: str, status: int, seconds: float) -> None:
        known = known_method(method)
        self._app.meter.count(REQUESTS, known, str(status))
        self._app.meter.observe(REQUEST_SECONDS, seconds, known)


def is_scrapyd_path(path: str) -> bool:
    """Whether an address on weft's own port is Scrapyd's; its front page never is."""
    return path in ENDPOINTS or (path != "/" and first_part(path) in PAGES)


def first_part(path: str) -> str:
    return "/" + path.lstrip("/").partition("/")[0]


def _error_text(problem: WeftError) -> str:
    """As Scrapyd tells of what it has not foreseen: the kind of the problem, and what it says."""
    if isinstance(problem, Rejected):
        return redacted(f"RunnerError: {problem}\n{problem.traceback}".rstrip())
    return redacted(f"{type(problem).__name__}: {problem.public}")
