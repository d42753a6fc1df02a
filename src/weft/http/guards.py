"""Limits of a request's head and body, the allowed host names and the security headers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection, Request

from weft.operations.problems import RequestRefused

if TYPE_CHECKING:
    from weft.operations.operation import Operation

DEEPEST_JSON = 64
LONGEST_URL, MOST_HEADERS, LONGEST_HEADERS = 8 * 1024, 100, 32 * 1024
BODY_SECONDS = 60.0
"""How long a body may take to arrive."""

HOST_FORMAT = re.compile(r"[a-z0-9][a-z0-9.:_-]{0,99}", re.ASCII)

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer that does not say otherwise."""


class AllowedHosts:
    """The names under which weft may be asked for: a page elsewhere that points its name at us gets nothing."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(name.lower() for name in names)

    def check(self, request: HTTPConnection) -> None:
        name = host_name(request.headers.get("host", ""))
        if name not in self._names:
            shown = name if HOST_FORMAT.fullmatch(name) else "NAME"
            raise RequestRefused(
                "wrong_host",
                f"this weft is not known as {name[:100]!r}. To let it be, add the name to the setting allowed_hosts "
                f'(WEFT_ALLOWED_HOSTS={shown} in the environment, or allowed_hosts = "{shown}" in weft.toml; commas '
                "separate several) and start weft again",
            )

    def allows_origin(self, origin: str) -> bool:
        """Whether a page of ``origin`` is one of ours."""
        scheme, _, rest = origin.partition("://")
        return scheme in ("http", "https") and host_name(rest) in self._names


def host_name(text: str) -> str:
    """The host without its port."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::\d*)?", text)
    return (found[1] if found else text).lower().strip("[]")


def check_head(request: Request) -> None:
    """Refuse a head that is longer than any that is meant well."""
    url = len(request.scope.get("raw_path", b"")) + len(request.scope["query_string"])
    headers = request.scope["headers"]
    size = sum(len(name) + len(value) for name, value in headers)
    if url > LONGEST_URL or len(headers) > MOST_HEADERS or size > LONGEST_HEADERS:
        raise RequestRefused(
            "head_too_large",
            f"an address may have {LONGEST_URL} bytes, and there may be {MOST_HEADERS} headers "
            f"of {LONGEST_HEADERS} bytes together",
        )


async def read_body(request: Request, operation: Operation[Any]) -> bytes:
    """The body of a JSON request, no larger and no deeper than allowed."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise RequestRefused("unsupported_media_type", f"{operation.name} takes application/json")
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > operation.largest_body:
        raise RequestRefused("too_large", f"the body may have at most {operation.largest_body} bytes")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _gathered(request, operation.largest_body)
    except TimeoutError:
        raise RequestRefused("too_slow", f"the body did not arrive within {BODY_SECONDS:g} s") from None
    check_depth(body)
    return body


def check_body(body: bytes, operation: Operation[Any]) -> None:
    """Refuse a body that is not from a request and is larger or deeper than one may be."""
    if len(body) > operation.largest_body:
        raise RequestRefused("too_large", f"the body may have at most {operation.largest_body} bytes")
    check_depth(body)


async def _gathered(request: Request, most: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise RequestRefused("too_large", f"the body may have at most {most} bytes")
    return bytes(body)


_BRACKETS = re.compile(rb'"(?:[^"\\]+|\\.?)*+"?|[\[{]|[\]}]', re.DOTALL)
"""Texts, also one that does not end, so that each byte is looked at once; and brackets between them."""


def check_depth(body: bytes | bytearray) -> None:
    """Refuse JSON that is nested so deeply that reading it could break something."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST_JSON:
        return
    depth = 0
    for found in _BRACKETS.finditer(body):
        mark = found[0][:1]
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > DEEPEST_JSON:
            raise RequestRefused("bad_request", f"the JSON may be nested {DEEPEST_JSON} deep at most")
