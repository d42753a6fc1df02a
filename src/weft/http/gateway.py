"""The ASGI application of the API: finds the operation of a request, has it performed and encodes its answer.

An operation that ends without having decided whether its caller may do this is refused: access is denied by default.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from weft.app import App
from weft.http import event_socket
from weft.http.access_log import known_method, note_route
from weft.http.authentication import Authenticator
from weft.http.event_socket import EventSocket
from weft.http.guards import SECURITY_HEADERS, AllowedHosts, check_head, read_body
from weft.http.limits import ConcurrencyLimit, RateLimit, limit_key
from weft.http.performer import Performer
from weft.metrics import REQUEST_SECONDS, REQUESTS
from weft.operations.operation import Call, Operation, SharedAnswer, decode_body, decode_query
from weft.operations.problems import RequestRefused, encode_problem, log_problem, problem_of

log = logging.getLogger(__name__)

ALWAYS_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
HSTS = (b"strict-transport-security", b"max-age=31536000")
PROCESS_ID, REQUEST_NUMBERS = secrets.token_hex(6), count(1)
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class RouteTable:
    """Which operation an address and a method name."""

    def __init__(self, operations: Sequence[Operation[Any]]) -> None:
        self._fixed: dict[str, dict[str, Operation[Any]]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Operation[Any]]]] = []
        by_path: dict[str, dict[str, Operation[Any]]] = {}
        for operation in operations:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        for path, methods in by_path.items():
            if "{" in path:
                self._patterns.append((compile_path(path)[0], methods))
            else:
                self._fixed[path] = methods

    def find(self, method: str, path: str) -> tuple[Operation[Any], Mapping[str, str]]:
        methods, values = self._methods(path)
        operation = methods.get("GET" if method == "HEAD" and "HEAD" not in methods else method)
        if operation is None:
            allow = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
            raise RequestRefused("method_not_allowed", f"{path[:200]} takes {allow}", allow=allow)
        return operation, values

    def _methods(self, path: str) -> tuple[dict[str, Operation[Any]], Mapping[str, str]]:
        if path in self._fixed:
            return self._fixed[path], {}
        for pattern, methods in self._patterns:
            if found := pattern.fullmatch(path):
                return methods, found.groupdict()
        raise RequestRefused("not_found", f"there is nothing at {path[:200]}")


class Gateway:
    """An ASGI application."""

    def __init__(
        self,
        app: App,
        operations: Sequence[Operation[Any]],
        callers: Authenticator,
        hosts: AllowedHosts,
        rates: RateLimit,
        streams: ConcurrencyLimit,
    ) -> None:
        self.app, self.operations, self._streams = app, tuple(operations), streams
        self._routes, self._hosts = RouteTable(operations), hosts
        self.performer = Performer(app, operations, callers, rates)

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
        if socket.scope["path"] != event_socket.SOCKET_PATH:
            raise RequestRefused("not_found", f"there is nothing at {socket.scope['path'][:200]}")
        operation, _ = self._routes.find("GET", "/v1/events")
        note_route(socket.scope, event_socket.SOCKET_PATH)
        caller = await self.performer.caller(socket, operation)
        held.enter_context(self._streams.taken(limit_key(caller)))
        return EventSocket(self.app, socket, caller, self.performer.again(socket, operation))

    def _measure(self, method: str, status: int, seconds: float) -> None:
        known = known_method(method)
        self.app.meter.count(REQUESTS, known, str(status))
        self.app.meter.observe(REQUEST_SECONDS, seconds, known)

    async def _answer(self, request: Request, request_id: str) -> Response:
        check_head(request)
        self._hosts.check(request)
        operation, values = self._routes.find(request.method, request.scope["path"])
        note_route(request.scope, operation.path)
        caller = await self.performer.caller(request, operation)
        call = self.performer.call(request, request_id, operation, caller, values, request.headers)
        if operation.query is not None:
            call.query = decode_query(dict(request.query_params), operation.query)
        if operation.body is not None:
            call.body = decode_body(await read_body(request, operation), operation.body)
        return _http_response(call, await self.performer.answer(call))

    def _problem(self, error: Exception, request: HTTPConnection, request_id: str) -> Response:
        log_problem(error, request_id, path=request.scope["path"])
        problem, headers = problem_of(error, request_id)
        return Response(encode_problem(problem), problem.status, headers, "application/problem+json")


def _http_response(call: Call, answer: Any) -> Response:
    if isinstance(answer, Response):
        answer.headers.update(call.headers)
        return answer
    if answer is None and call.operation.answer is None:
        return Response(status_code=204, headers=call.headers)
    data = answer.data if isinstance(answer, SharedAnswer) else msgspec.json.encode(answer)
    return Response(data, call.operation.status, call.headers, call.operation.media_type)


def add_headers(response: Response, request_id: str, *, is_https: bool) -> None:
    """What every answer says, unless it says otherwise itself."""
    said = {name for name, _ in response.raw_headers}
    response.raw_headers += [each for each in ALWAYS_HEADERS if each[0] not in said]
    response.raw_headers.append((b"x-request-id", request_id.encode()))
    if is_https:
        response.raw_headers.append(HSTS)


def request_id_of(request: HTTPConnection) -> str:
    """The caller's own, or one that no other process gives."""
    given = request.headers.get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else f"{PROCESS_ID}{next(REQUEST_NUMBERS):08x}"
