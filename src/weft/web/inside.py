"""Calls of the API from inside, with the credentials of whoever looks at a page.

A page can do no more than its reader could do with the API, and all that guards the API guards pages as well: roles,
the token that changes need, limits, the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.api.problems import Problem

PASSED_ON = frozenset(
    (
        b"host",
        b"cookie",
        b"authorization",
        b"origin",
        b"sec-fetch-site",
        b"user-agent",
        b"x-forwarded-for",
        b"forwarded",
    )
)
"""What the API is told of the request for a page."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API has answered."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.data) if self.data else None


class Refusal(Exception):
    """The API has refused; ``problem`` says why."""

    def __init__(self, problem: Problem, headers: Mapping[str, str]) -> None:
        super().__init__(problem.detail)
        self.problem, self.headers = problem, headers


async def call(
    api: ASGIApp,
    scope: Scope,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Make one call in the name of whoever sent the request of ``scope``; raise where it is refused."""
    content = b"" if body is None else msgspec.json.encode(body)
    told = {**(headers or {}), "content-type": "application/json", "content-length": str(len(content))}
    sent = [each for each in scope["headers"] if each[0] in PASSED_ON and each[0].decode() not in told]
    sent += [(name.encode(), value.encode(errors="replace")) for name, value in told.items()]
    address = {"path": unquote(path), "raw_path": path.encode(), "query_string": urlencode(query or {}).encode()}
    inner: Scope = {**scope, **address, "method": method, "headers": sent, "state": {}}
    answer = await _gathered(api, inner, content)
    if answer.status >= 400:
        raise Refusal(msgspec.json.decode(answer.data, type=Problem), answer.headers)
    return answer


async def _gathered(api: ASGIApp, scope: Scope, content: bytes) -> Answer:
    begun: Message = {}
    data = bytearray()

    waiting = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> Message:
        """The body, once; then nothing: nobody hangs up on an answer that comes in pieces."""
        return next(waiting, None) or await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            begun.update(message)
        else:
            data.extend(message.get("body", b""))

    await api(scope, receive, send)
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in begun["headers"]}
    return Answer(begun["status"], headers, bytes(data))


class PassedOn(Response):
    """The answer of the API itself, piece by piece: for files, which may be larger than memory."""

    def __init__(
        self,
        api: ASGIApp,
        path: str,
        query: Mapping[str, str],
        asked: Mapping[str, str],
        told: Mapping[str, str],
    ) -> None:
        """``asked`` are headers of the call, ``told`` further ones of the answer."""
        super().__init__()
        self._api, self._path, self._query, self._asked, self._told = api, path, query, asked, told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = [each for each in scope["headers"] if each[0] in PASSED_ON and each[0].decode() not in self._asked]
        sent += [(name.encode(), value.encode()) for name, value in self._asked.items()]
        address = {"path": self._path, "raw_path": self._path.encode()}
        query = urlencode(self._query).encode()
        inner: Scope = {**scope, **address, "query_string": query, "headers": sent, "state": {}}
        names = {name.lower().encode() for name in self._told}

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [each for each in message["headers"] if each[0] not in names]
                more = [(name.lower().encode(), value.encode()) for name, value in self._told.items()]
                message = {**message, "headers": [*kept, *more]}
            await send(message)

        await self._api(inner, receive, tell)
