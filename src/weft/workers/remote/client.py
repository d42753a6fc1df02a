"""The HTTP client of a remote worker: one session for each event loop, and calls that are retried."""

from __future__ import annotations

import asyncio
import io
import random
import ssl
import time
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import aiohttp
import msgspec

from weft.errors import (
    NOT_SHOWN,
    Conflict,
    GatewayDown,
    GatewayUntrusted,
    Invalid,
    LeaseLost,
    Misconfigured,
    NotAllowed,
    Unknown,
)
from weft.workers.remote.wire import PROTOCOL, VERSION_HEADER

ANSWER_SECONDS = 10.0
LARGE = 1 << 20
"""A body of more bytes is sent piece by piece."""
CONNECT_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 5.0
LONGEST_RETRY_AFTER_SECONDS = 30.0
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that say no more than «not now»."""

T = TypeVar("T")


class GatewayProblem(msgspec.Struct, frozen=True):
    """What is read of a problem document."""

    code: str = ""
    detail: str = ""


class RemoteWorkerClient:
    """Calls one gateway with one key. May be used from several event loops at once."""

    def __init__(self, url: str, key: str, *, ca_file: str = "", proxy: str | None = None) -> None:
        self.url, self._key, self._proxy = url.rstrip("/"), key, proxy
        self._ssl = ssl_context(ca_file) if url.startswith("https:") else True
        self._sessions: dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, asyncio.Task[None]]] = {}

    async def call(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: Any = None,
        data: bytes | None = None,
        patience: float = 0.0,
        seconds: float = ANSWER_SECONDS,
    ) -> T:
        """Make a call; where it does not come through, again and again for ``patience`` seconds.

        Raises ``GatewayDown`` after that, and at once what the gateway refuses.
        """
        headers = {"Authorization": f"Bearer {self._key}", VERSION_HEADER: str(PROTOCOL)}
        if body is not None:
            data, headers["Content-Type"] = msgspec.json.encode(body), "application/json"
        deadline = time.monotonic() + patience
        for pause in backoff_seconds():
            try:
                return await self._once(method, path, kind, data, headers, seconds)
            except GatewayDown as problem:
                pause = max(pause, min(problem.retry_after_seconds, LONGEST_RETRY_AFTER_SECONDS))
                if time.monotonic() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def close(self) -> None:
        """End the session of this event loop; those of others end with their loops."""
        if (kept := self._sessions.pop(asyncio.get_running_loop(), None)) is not None:
            kept[1].cancel()
            await asyncio.gather(kept[1], return_exceptions=True)

    async def _once(
        self, method: str, path: str, kind: type[T], data: bytes | None, headers: dict[str, str], seconds: float
    ) -> T:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session().request(
                method,
                self.url + path,
                data=io.BytesIO(data) if data is not None and len(data) > LARGE else data,
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
                ssl=self._ssl,
                allow_redirects=False,
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise unanswered(self.url, problem) from problem
        if response.status >= 300:
            raise self._refused(response, content)
        return self._decoded(content, kind)

    def _decoded(self, content: bytes, kind: type[T]) -> T:
        if kind is type(None):
            return kind()
        if kind is bytes:
            return cast(T, content)
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise GatewayDown(self.url, f"what answers there is no gateway of weft: {problem}") from problem

    def _refused(self, response: aiohttp.ClientResponse, content: bytes) -> Exception:
        try:
            said = msgspec.json.decode(content, type=GatewayProblem)
        except (msgspec.DecodeError, RecursionError):
            said = GatewayProblem()
        if response.status in PASSING or not said.code:
            why = said.detail or f"status {response.status}"
            return GatewayDown(self.url, why, retry_after_seconds=_seconds(response.headers.get("Retry-After")))
        if said.code == "lease_lost":
            return LeaseLost("of this key")
        known = {401: Unknown, 403: NotAllowed, 409: Conflict}
        refusal = known.get(response.status)
        return refusal(said.detail) if refusal else Invalid("the call", NOT_SHOWN, said.detail)

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            session = aiohttp.ClientSession()
            self._sessions[loop] = (session, loop.create_task(_close_with_loop(session)))
        return self._sessions[loop][0]


async def _close_with_loop(session: aiohttp.ClientSession) -> None:
    """Close the session when the tasks of its event loop are cancelled."""
    async with session:
        await asyncio.Event().wait()


def unanswered(url: str, problem: Exception) -> GatewayDown:
    """Why a call did not come through."""
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        return GatewayUntrusted(url, getattr(problem.certificate_error, "verify_message", problem.certificate_error))
    if isinstance(problem, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        return GatewayDown(url, "what answers there is cut off, or is not HTTP")
    return GatewayDown(url, str(problem) or type(problem).__name__)


def backoff_seconds() -> Iterator[float]:
    """Longer and longer, and never the same for two workers."""
    full = 0.1
    while True:
        yield full * random.uniform(0.5, 1.0)
        full = min(2 * full, LONGEST_PAUSE_SECONDS)


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isascii() and text.isdigit() else 0.0


def ssl_context(ca_file: str) -> ssl.SSLContext:
    """What to check a server's certificate by: those of the system, or those in a file."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as problem:
        raise Misconfigured(
            f"ca_file is {ca_file!r}; it must be a file of certificates in PEM ({problem})"
        ) from problem
