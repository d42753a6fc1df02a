"""The access log: one line a request. Operations that a page calls have no line of their own."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.access.model import Caller
from weft.logging_config import REQUESTS

log = logging.getLogger(REQUESTS)

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
HEALTH = frozenset({"/healthz", "/readyz"})
SCOPE_KEY = "weft.noted"
CLIENT_CLOSED_REQUEST = 499
"""The status of a request whose caller went away before the answer began, as nginx calls it."""


@dataclass(slots=True)
class LoggedRequest:
    """What has been found out about a request."""

    scope: Scope
    route: str | None = None
    """The address with names in the place of values, so that no value is in the log."""
    caller: str | None = None
    status: int = CLIENT_CLOSED_REQUEST
    request_id: str | None = None


class AccessLog:
    """An ASGI application before another."""

    def __init__(self, application: ASGIApp) -> None:
        self._inner = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not log.isEnabledFor(logging.INFO):
            await self._inner(scope, receive, send)
            return
        began = time.monotonic()
        scope[SCOPE_KEY] = noted = LoggedRequest(scope)

        async def watch(message: Message) -> None:
            kind = message["type"]
            if kind.endswith("http.response.start"):
                noted.status, noted.request_id = message["status"], _request_id(message)
            elif kind == "websocket.accept":
                noted.status = 101
            await send(message)

        try:
            await self._inner(scope, receive, watch)
        finally:
            if noted.route not in HEALTH:
                _tell(scope, noted, time.monotonic() - began)


def note_route(scope: Scope, route: str) -> None:
    """Say which route a request takes. Those of the calls that a page makes, which have a scope of their own, do not
    count."""
    noted: LoggedRequest | None = scope.get(SCOPE_KEY)
    if noted is not None and noted.scope is scope:
        noted.route = route


def note_caller(scope: Scope, caller: Caller) -> None:
    noted: LoggedRequest | None = scope.get(SCOPE_KEY)
    if noted is not None:
        noted.caller = caller.actor


def tell_unread(method: str, status: int, seconds: float) -> None:
    """Write the line of a request that was answered before its head was read to its end."""
    if log.isEnabledFor(logging.INFO):
        scope: Scope = {"type": "http", "method": method}
        _tell(scope, LoggedRequest(scope, status=status), seconds)


def known_method(method: str) -> str:
    """Anybody may send any word."""
    return method if method in METHODS else "other"


def _tell(scope: Scope, noted: LoggedRequest, seconds: float) -> None:
    told = {
        "method": known_method(scope["method"]) if scope["type"] == "http" else "WEBSOCKET",
        "route": noted.route,
        "status": noted.status,
        "ms": round(seconds * 1000, 2),
        "caller": noted.caller,
        "request_id": noted.request_id,
    }
    log.info("request", extra={"told": told})


def _request_id(message: Message) -> str | None:
    for name, value in message["headers"]:
        if name == b"x-request-id":
            return str(value.decode("latin-1"))
    return None
