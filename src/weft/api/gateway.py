"""The gateway: finds the operation of a request, who calls it, and answers. Nothing that it serves is elsewhere.

Every request takes the same way: host, address, caller, body, operation, answer. An operation that ends without having
decided whether its caller may do this is refused: access is denied by default.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from weft.access.model import Caller
from weft.api import sockets
from weft.api.alike import Alike
from weft.api.call import Call, converted, decoded
from weft.api.callers import Callers
from weft.api.guards import SECURITY, Hosts, check_head, read_body
from weft.api.noting import handled
from weft.api.operation import Operation
from weft.api.places import Places, named
from weft.api.problems import Refused, encoded, problem_of
from weft.api.rates import Rates
from weft.api.sockets import EventSocket
from weft.api.streams import Rechecks
from weft.app import App
from weft.documents.shelf import Shelf
from weft.errors import WeftError
from weft.metrics import REQUEST_SECONDS, REQUESTS

log = logging.getLogger(__name__)

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NOBODY = Caller(name="nobody", kind="nobody")
ALWAYS = [(name.lower().encode(), value.encode()) for name, value in SECURITY.items()]
HSTS = (b"strict-transport-security", b"max-age=31536000")
MINE, NUMBERS = secrets.token_hex(6), count(1)
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class Routes:
    """Which operation an address and a method name."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._fixed: dict[str, dict[str, Operation]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Operation]]] = []
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        for path, methods in by_path.items():
            if "{" in path:
                self._patterns.append((compile_path(path)[0], methods))
            else:
                self._fixed[path] = methods

    def find(self, method: str, path: str) -> tuple[Operation, Mapping[str, str]]:
        methods, values = self._methods(path)
        operation = methods.get("GET" if method == "HEAD" and "HEAD" not in methods else method)
        if operation is None:
            allow = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
            raise Refused("method_not_allowed", f"{path[:200]} takes {allow}", allow=allow)
        return operation, values

    def _methods(self, path: str) -> tuple[dict[str, Operation], Mapping[str, str]]:
        if path in self._fixed:
            return self._fixed[path], {}
        for pattern, methods in self._patterns:
            if found := pattern.fullmatch(path):
                return methods, found.groupdict()
        raise Refused("not_found", f"there is nothing at {path[:200]}")


class Gateway:
    """An ASGI application."""

    def __init__(
        self,
        app: App,
        operations: Sequence[Operation],
        callers: Callers,
        hosts: Hosts,
        rates: Rates,
        streams: Places,
    ) -> None:
        self.app, self.operations, self._rates, self._streams = app, tuple(operations), rates, streams
        self._routes, self._callers, self._hosts = Routes(operations), callers, hosts
        self._rechecks, self._alike, self._shelf = Rechecks(), Alike(), Shelf()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._converse(WebSocket(scope, receive, send))
            return
        request = Request(scope, receive)
        began, request_id = time.monotonic(), request_id_of(request)
        try:
            response = await self._answer(request, request_id)
        except ClientDisconnect:
            return
        except Exception as error:
            response = self._problem(error, request, request_id)
        self._measure(request.method, response.status_code, time.monotonic() - began)
        add_headers(response, request_id, is_https=scope["scheme"] == "https")
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)
        if log.isEnabledFor(logging.DEBUG):
            told: dict[str, Any] = {"request_id": request_id, "method": request.method, "path": request.scope["path"]}
            told |= {"status": response.status_code, "seconds": round(time.monotonic() - began, 4)}
            log.debug("request", extra=told)

    async def _converse(self, socket: WebSocket) -> None:
        """The one WebSocket there is. It takes the same way as a request until it is accepted."""
        with ExitStack() as held:
            try:
                conversation = await self._met(socket, held)
            except Exception as error:
                await socket.send_denial_response(self._problem(error, socket, request_id_of(socket)))
                return
            await conversation.run()

    async def _met(self, socket: WebSocket, held: ExitStack) -> EventSocket:
        self._hosts.check(socket)
        if socket.scope["path"] != sockets.PATH:
            raise Refused("not_found", f"there is nothing at {socket.scope['path'][:200]}")
        operation, _ = self._routes.find("GET", "/v1/events")
        caller = await self._caller(socket, operation)
        held.enter_context(self._streams.taken(named(caller)))
        return EventSocket(self.app, socket, caller, self._again(socket, operation))

    def _measure(self, method: str, status: int, seconds: float) -> None:
        known = method if method in METHODS else "other"  # anybody may send any word
        self.app.meter.count(REQUESTS, known, str(status))
        self.app.meter.observe(REQUEST_SECONDS, seconds, known)

    async def _answer(self, request: Request, request_id: str) -> Response:
        check_head(request)
        self._hosts.check(request)
        operation, values = self._routes.find(request.method, request.scope["path"])
        request.scope["path_params"] = dict(values)
        caller = await self._caller(request, operation)
        shared = (self._alike, self._shelf)
        call = Call(self.app, operation, request, caller, request_id, *shared, self._again(request, operation))
        if operation.query is not None:
            call.query = converted(dict(request.query_params), operation.query)
        if operation.body is not None:
            call.body = decoded(await read_body(request, operation), operation.body)
        answer = await handled(call)
        call.refuse_unchecked()
        return _response(call, answer)

    async def _caller(self, request: HTTPConnection, operation: Operation) -> Caller:
        address = request.client.host if request.client else ""
        self._callers.check_origin(request, operation)
        if operation.needs is None:
            self._rates.check(address)
            return NOBODY
        caller = await self._callers.of(request, operation)
        self._rates.check(named(caller))
        return caller

    def _again(self, request: HTTPConnection, operation: Operation) -> Callable[[], Awaitable[Caller]]:
        """Who calls, for what lasts longer than an answer."""
        return lambda: self._rechecks.of(request, lambda: self._callers.of(request, operation))

    def _problem(self, error: Exception, request: HTTPConnection, request_id: str) -> Response:
        if not isinstance(error, WeftError):
            log.exception("a request failed", extra={"request_id": request_id, "path": request.scope["path"]})
        problem, headers = problem_of(error, request_id)
        return Response(encoded(problem), problem.status, headers, "application/problem+json")


def _response(call: Call, answer: Any) -> Response:
    if isinstance(answer, Response):
        answer.headers.update(call.headers)
        return answer
    if answer is None and call.operation.answer is None:
        return Response(status_code=204, headers=call.headers)
    data = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    return Response(data, call.operation.status, call.headers, call.operation.media_type)


def add_headers(response: Response, request_id: str, *, is_https: bool) -> None:
    """What every answer says, unless it says otherwise itself."""
    said = {name for name, _ in response.raw_headers}
    response.raw_headers += [each for each in ALWAYS if each[0] not in said]
    response.raw_headers.append((b"x-request-id", request_id.encode()))
    if is_https:
        response.raw_headers.append(HSTS)


def request_id_of(request: HTTPConnection) -> str:
    """The caller's own, or one that no other process gives."""
    given = request.headers.get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else f"{MINE}{next(NUMBERS):08x}"
