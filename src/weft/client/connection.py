"""The line from a client to a gateway: calls with a key, and answers as values or as the errors that they tell of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import IO, Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from weft import errors
from weft.errors import GatewayDown, GatewayUntrusted, Invalid, Misconfigured, Unknown, WeftError
from weft.workers.remote.client import ssl_context, unanswered

ANSWER_SECONDS = 60.0
CONNECT_SECONDS = 10.0
FIRST_SECONDS, LARGEST_FIRST = 20.0, 1 << 20
"""Of the first answer of somebody who may be no weft."""
CORRECT = "correct it, or name a weft with --context"
PIECE = 1 << 20
MOST_SEEN = 10_000
"""Of how many definitions it is remembered what they were."""

T = TypeVar("T")

KINDS: dict[str, type[WeftError]] = {
    "invalid": errors.Invalid,
    "bad_request": errors.Invalid,
    "rejected": errors.Rejected,
    "not_found": errors.NotFound,
    "conflict": errors.Conflict,
    "changed_meanwhile": errors.ChangedMeanwhile,
    "unknown_caller": errors.Unknown,
    "not_allowed": errors.NotAllowed,
    "queue_full": errors.QueueFull,
    "too_many_requests": errors.TooManyLogins,
    "database_down": errors.DatabaseDown,
    "blobs_down": errors.BlobsDown,
}
"""The error that each code of a problem document tells of; others are told as they are."""


class Told(msgspec.Struct, frozen=True):
    """What is read of a problem document."""

    code: str = ""
    detail: str = ""
    traceback: str = ""


class Connection:
    """Calls one gateway with one key."""

    def __init__(self, url: str, token: str = "", *, ca_file: str = "", basic: tuple[str, str] | None = None) -> None:
        self.url = _checked(url)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        if basic is not None:
            self._headers = {"Authorization": aiohttp.BasicAuth(*basic, encoding="utf-8").encode()}
        self._ssl = ssl_context(ca_file) if self.url.startswith("https:") else True
        self._session: aiohttp.ClientSession | None = None
        self._seen: dict[tuple[str, ...], str] = {}

    async def greet(self, origin: str) -> None:
        """Refuse to go on where no weft answers, or none that knows us; ``origin`` tells who has named this URL."""
        where = f"{self.url} ({origin})"
        try:
            status, answer = await self._first("/v1/session", self._headers)
            as_scrapyd = False
            if not _is_weft(status, answer):
                _, told = await self._first("/daemonstatus.json", {})
                as_scrapyd = b'"node_name"' in told
        except GatewayUntrusted as problem:
            raise GatewayUntrusted(where, problem.why, f"`weft login {self.url} --ca-file FILE`") from problem
        except GatewayDown as problem:
            if isinstance(problem.__cause__, aiohttp.ClientConnectorSSLError):
                plain = self.url.replace("https:", "http:", 1)
                raise Misconfigured(f"{where} answers, but not in HTTPS (is it {plain}?); {CORRECT}") from problem
            if isinstance(problem.__cause__, aiohttp.ClientResponseError):
                raise Misconfigured(f"{where} answers, but not in HTTP; {CORRECT}") from problem
            if isinstance(problem.__cause__, aiohttp.ClientPayloadError):
                raise GatewayDown(where, "its answer is cut off or damaged") from problem
            if isinstance(problem.__cause__, TimeoutError):
                raise GatewayDown(where, f"nothing came within {FIRST_SECONDS:g} s") from problem
            raise GatewayDown(where, problem.__cause__ or problem) from problem
        if not _is_weft(status, answer):
            what = "as Scrapyd" if as_scrapyd else f"with status {status}"
            raise Misconfigured(f"{where} answers {what}, not as weft does; {CORRECT}")
        if status >= 300:
            refusal = self._refusal(status, answer)
            if isinstance(refusal, Unknown):
                raise Unknown(f"{where} does not know you ({refusal}); `weft login {self.url}` makes that so") from None
            raise refusal

    async def _first(self, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Ask somebody who may be anybody: neither for long nor for more than weft's own answer may have."""
        timeout = aiohttp.ClientTimeout(total=FIRST_SECONDS, sock_connect=CONNECT_SECONDS)
        told: dict[str, Any] = {"headers": headers, "ssl": self._ssl, "timeout": timeout, "allow_redirects": False}
        found = bytearray()
        try:
            async with self._opened().get(self.url + path, **told) as answer:
                async for piece in answer.content.iter_chunked(LARGEST_FIRST):
                    found += piece
                    if len(found) > LARGEST_FIRST:
                        break
                return answer.status, bytes(found)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise unanswered(self.url, problem) from problem

    async def get(self, kind: Any, *path: object, **query: Any) -> Any:
        return await self.call("GET", path, kind, query=query)

    async def post(self, kind: Any, *path: object, body: Any = None, **query: Any) -> Any:
        return await self.call("POST", path, kind, body=body, query=query)

    async def call(
        self,
        method: str,
        path: tuple[object, ...],
        kind: Any,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: IO[bytes] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Make one call; ``kind`` is the type of its answer, bytes for one that is no JSON.

        ``content`` is a body that is no JSON; it is sent piece by piece. What was read here before is changed only
        where it is still as it was read (If-Match); else ChangedMeanwhile is raised.
        """
        parts = tuple(str(part) for part in path)
        address = self.url + "/v1/" + "/".join(quote(part, safe="") for part in parts)
        asked = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        sent = {**self._headers, **self._as_seen(method, parts), **(headers or {})}
        data: Any = None
        if content is not None:
            data, sent["Content-Type"] = content, "application/octet-stream"
        if body is not None:
            data, sent["Content-Type"] = msgspec.json.encode(body), "application/json"
        whole = f"{address}?{urlencode(asked)}" if asked else address
        status, etag, answer = await self._once(method, whole, data, sent, seconds)
        if status >= 300:
            raise self._refusal(status, answer)
        self._remember(method, parts, etag)
        return answer if kind is bytes else self._decoded(answer, kind)

    async def pieces(self, *path: object, **query: Any) -> AsyncIterator[bytes]:
        """The same for an answer that may be larger than anybody's memory."""
        asked = urlencode({name: _text(value) for name, value in query.items() if value not in (None, "")})
        address = self.url + "/v1/" + "/".join(quote(str(part), safe="") for part in path)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS)
        told: dict[str, Any] = {"headers": self._headers, "ssl": self._ssl, "timeout": timeout}
        try:
            async with self._opened().get(f"{address}?{asked}", allow_redirects=False, **told) as answer:
                if answer.status >= 300:
                    raise self._refusal(answer.status, await answer.read())
                async for piece in answer.content.iter_chunked(PIECE):
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise unanswered(self.url, problem) from problem

    def forget(self, *beginning: str) -> None:
        """Change what is at these addresses whatever others have made of it since it was read here."""
        self._seen = {parts: etag for parts, etag in self._seen.items() if parts[: len(beginning)] != beginning}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _once(
        self, method: str, address: str, data: Any, headers: Mapping[str, str], seconds: float
    ) -> tuple[int, str, bytes]:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._opened().request(
                method, address, data=data, headers=headers, ssl=self._ssl, allow_redirects=False, timeout=timeout
            ) as answer:
                return answer.status, answer.headers.get("ETag", ""), await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise unanswered(self.url, problem) from problem

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=True)
        return self._session

    def _as_seen(self, method: str, parts: tuple[str, ...]) -> dict[str, str]:
        seen = self._seen.get(_definition(parts)) if method in ("PUT", "PATCH", "DELETE") else None
        return {} if seen is None else {"If-Match": seen}

    def _remember(self, method: str, parts: tuple[str, ...], etag: str) -> None:
        """Keep what a definition was when it was read, or after a change; the answer to a verb tells of its subject."""
        about = _definition(parts[:-1] if method == "POST" else parts)
        if method == "DELETE":
            self._seen.pop(about, None)
        elif etag:
            if len(self._seen) >= MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            self._seen[about] = etag

    def _decoded(self, content: bytes, kind: Any) -> Any:
        if kind is None:
            return None
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise GatewayDown(self.url, f"what answers there is no weft that this one understands: {problem}") from None

    def _refusal(self, status: int, content: bytes) -> WeftError:
        try:
            told = msgspec.json.decode(content, type=Told)
        except (msgspec.DecodeError, RecursionError):
            told = Told()
        kind = KINDS.get(told.code)
        if not told.code or (kind is None and status >= 500):
            return GatewayDown(self.url, told.detail or f"status {status}")
        kind = kind or WeftError
        error = kind.__new__(kind)
        Exception.__init__(error, told.detail)  # the sentence was made where the error was
        if isinstance(error, errors.Rejected):
            error.traceback = told.traceback
        return error


def _is_weft(status: int, answer: bytes) -> bool:
    """Whether this is weft's answer to the question who we are."""
    try:
        found = msgspec.json.decode(answer, type=dict)
    except (msgspec.DecodeError, RecursionError):
        return False
    return "grants" in found if status == 200 else str(found.get("type", "")).startswith("about:blank#")


def _definition(parts: tuple[str, ...]) -> tuple[str, ...]:
    """What is changed at an address: a schedule is part of its task and has its ETag."""
    return ("tasks", *parts[1:]) if parts[:1] == ("schedules",) else parts


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")) or "?" in url or "#" in url:
        raise Invalid("the address of weft", url, "it must look like https://weft.example or http://127.0.0.1:6800")
    return url.rstrip("/")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
