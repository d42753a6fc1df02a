"""Believes the proxies that were named: where a request came from, and under which path they show us."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

PREFIX = b"x-forwarded-prefix"
_PLAIN = re.compile(r"(?:/(?!\.+(?:/|$))[A-Za-z0-9._~-]{1,100}){1,10}", re.ASCII)


class Proxied:
    """An ASGI application before another. What a request says of itself counts where ``trusted`` ones have sent it."""

    def __init__(self, application: ASGIApp, trusted: Sequence[str]) -> None:
        inner: Any = application
        self._inner = ProxyHeadersMiddleware(inner, trusted_hosts=list(trusted))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and client[0] in self._inner.trusted_hosts:
            scope["root_path"] = prefix_in(scope)
        inner: Any = self._inner
        await inner(scope, receive, send)


def prefix_in(scope: Scope) -> str:
    """The path that the proxy tells; what is no plain path counts as none, so that no link can lead elsewhere."""
    told = [value for name, value in scope["headers"] if name == PREFIX]
    text = told[0].decode("latin-1").strip().rstrip("/") if told else ""
    return text if _PLAIN.fullmatch(text) else ""
