"""The one way out: every fetch of weft leaves here, within limits, and only to addresses that may be connected to."""

from __future__ import annotations

import asyncio
import re
import time
from functools import lru_cache
from typing import BinaryIO

from weft import clock
from weft.addresses import Guard
from weft.fetching import places
from weft.fetching.connections import Connection, Pool
from weft.fetching.dialling import Dialler, Route, proxy_of
from weft.fetching.exchange import Ask, Exchange, NoAnswer
from weft.fetching.http1 import Answered
from weft.fetching.incoming import Incoming
from weft.fetching.resolving import CheckedNames, Resolver

USUAL = (("accept", "*/*"), ("accept-encoding", "gzip, deflate"))
REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
"""Methods that may be sent again where the server had closed the connection before it saw the request."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_VALUE = re.compile(r"[\t -~\x80-\xff]*").fullmatch
_OURS = frozenset(("host", "content-length", "transfer-encoding", "connection", "proxy-authorization"))


class Egress:
    """Fetches. One for each crawl, since connections and what is known of names belong to it."""

    def __init__(
        self,
        guard: Guard,
        *,
        user_agent: str,
        verify_tls: bool = True,
        http2: bool = True,
        connections_per_host: int = 8,
        connections: int = 1_000,
        idle_seconds: float = 30.0,
        resolver: Resolver | None = None,
    ) -> None:
        dialler = Dialler(CheckedNames(guard, resolver), verify_tls=verify_tls, http2=http2)
        self._pool = Pool(dialler, per_host=connections_per_host, most=connections, idle_seconds=idle_seconds)
        self._usual = (("user-agent", user_agent), *USUAL)
        self._lines = lru_cache(1_000)(self._rendered)

    async def fetch(self, ask: Ask) -> Exchange:
        """One request and its whole answer, whatever its status; ``NoAnswer`` where there is none by the deadline."""
        return await self._fetch(ask, None)

    async def _fetch(self, ask: Ask, sink: BinaryIO | None) -> Exchange:
        place, target = places.read(ask.url)
        route = Route(place, proxy_of(ask.exit) if ask.exit is not None else None)
        request = self._request(ask, route, target)
        began_at, began = clock.now(), time.perf_counter()
        incoming = Incoming(ask.largest_body, sink)
        try:
            async with asyncio.timeout(ask.deadline_seconds):
                connection, answered = await self._exchange(ask, route, request, incoming)
        except TimeoutError:
            sentence = f"there was no whole answer from {place.authority} within {ask.deadline_seconds:g} s"
            raise NoAnswer("deadline", sentence) from None
        raw, body = answered.incoming.finish()
        return Exchange(
            url=ask.url,
            status=answered.status,
            head=answered.head,
            headers=answered.incoming.headers,
            raw_body=raw,
            body=body,
            request=request[0],
            address=connection.address,
            http=answered.http,
            began_at=began_at,
            seconds=time.perf_counter() - began,
            sent_bytes=sum(map(len, request)),
            received_bytes=answered.received,
        )

    async def close(self) -> None:
        """End all connections."""
        await self._pool.close()

    async def _exchange(
        self, ask: Ask, route: Route, request: tuple[bytes, ...], incoming: Incoming
    ) -> tuple[Connection, Answered]:
        connection = await self._pool.take(route)
        again = connection.asked > 0 and ask.method in REPEATABLE
        try:
            return connection, await connection.ask(ask.method, request, incoming)
        except NoAnswer as problem:
            if problem.kind != "cut" or not again or not connection.untouched:
                raise
        finally:
            self._pool.give_back(connection)
        connection = await self._pool.take(route, fresh=True)
        try:
            return connection, await connection.ask(ask.method, request, incoming)
        finally:
            self._pool.give_back(connection)

    def _request(self, ask: Ask, route: Route, target: str) -> tuple[bytes, ...]:
        """The bytes to send: the head, and the body where there is one."""
        place, proxy = route.place, route.proxy
        through = proxy is not None and place.scheme == "http"
        asked = (
            f"{ask.method} {f'http://{place.authority}' if through else ''}{target} HTTP/1.1\r\nHost: {place.authority}"
        )
        head = asked.encode("ascii") + self._lines(ask.headers)
        if proxy is not None and through and proxy.login:
            head += b"proxy-authorization: " + proxy.login + b"\r\n"
        if not ask.body and ask.method in ("GET", "HEAD"):
            return (head + b"\r\n",)
        return head + b"content-length: %d\r\n\r\n" % len(ask.body), ask.body

    def _rendered(self, headers: tuple[tuple[str, str], ...]) -> bytes:
        """Headers as they are sent, after that of the host; given ones stand in for the usual ones."""
        given = {name.lower() for name, _ in headers}
        lines = [(name, value) for name, value in self._usual if name not in given]
        for name, value in (*lines, *headers):
            if not _NAME(name) or not _VALUE(value) or name.lower() in _OURS:
                raise NoAnswer("url", f"the header {name[:50]!r} cannot be sent as it is given")
        text = "".join(f"{name}: {value}\r\n" for name, value in (*lines, *headers))
        return b"\r\n" + text.encode("latin-1")
