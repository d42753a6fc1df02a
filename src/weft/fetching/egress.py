"""The HTTP client that all fetches go through: limits, redirects, and only addresses that may be connected to."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from url import URL, URLError

from weft import clock
from weft.address_guard import Guard
from weft.fetching import dialling
from weft.fetching.connections import ConnectionPool, HttpConnection
from weft.fetching.dialling import Dialler, route_to
from weft.fetching.model import Exchange, FetchError, FetchRequest
from weft.fetching.resolving import CheckedResolver, Resolver
from weft.fetching.transfer import (
    DeadlineExceeded,
    RawRequest,
    RawResponse,
    RequestRenderer,
    ResponseReader,
    StaleConnection,
)
from weft.fetching.urls import origin_of

REDIRECTS = frozenset((301, 302, 303, 307, 308))
SECRET_HEADERS = frozenset(("authorization", "cookie"))
"""Headers that are for one server and nobody else."""


def redirect_target(exchange: Exchange) -> str | None:
    """Where an answer sends us; None where it does not, ``FetchError`` where that is no address of the web."""
    if exchange.status not in REDIRECTS or not (given := exchange.header(b"location")):
        return None
    try:
        found = str(URL.parse(exchange.url).join(given.decode("utf-8", "replace")).with_fragment(None))
    except (URLError, UnicodeError) as problem:
        raise FetchError("url", f"{exchange.url[:200]} redirects to what is no address") from problem
    if not found.startswith(("http://", "https://")):
        raise FetchError("url", f"{exchange.url[:200]} redirects to {found[:200]!r}, which is no address of the web")
    return found


def redirected_request(ask: FetchRequest, exchange: Exchange, target: str) -> FetchRequest:
    """What is asked at the target of a redirect."""
    asked = replace(ask, url=target)
    if origin_of(target) != origin_of(ask.url):
        asked = replace(asked, headers=tuple(each for each in ask.headers if each[0].lower() not in SECRET_HEADERS))
    becomes_get = exchange.status == 303 or (exchange.status in (301, 302) and ask.method == "POST")
    return replace(asked, method="GET", body=b"") if becomes_get and ask.method != "HEAD" else asked


REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
"""Methods that may be sent again where the server had closed the connection before it saw the request."""


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
        idle_connections: int = 200,
        idle_seconds: float = 30.0,
        resolver: Resolver | None = None,
    ) -> None:
        self._names = CheckedResolver(guard, resolver)
        dialler = Dialler(self._names, verify_tls=verify_tls, http2=http2)
        limits = {"per_host": connections_per_host, "most": connections, "most_idle": idle_connections}
        self._pool = ConnectionPool(dialler, **limits, idle_seconds=idle_seconds)
        self._renderer = RequestRenderer(user_agent)

    async def fetch(self, ask: FetchRequest) -> Exchange:
        """One request and its whole answer, whatever its status; ``FetchError`` where there is none by the deadline."""
        return await self._fetch(ask, None)

    async def fetch_to(self, ask: FetchRequest, path: Path) -> Exchange:
        """The same, with the body in a file, decompressed; that of the exchange is then empty.

        The file is there only where the answer is whole.
        """
        part = path.with_name(path.name + ".part")
        with ExitStack() as stack:
            stack.callback(part.unlink, missing_ok=True)
            with part.open("wb") as sink:
                exchange = await self._fetch(ask, sink)
            part.replace(path)
            return exchange

    async def fetch_following(self, ask: FetchRequest, redirects: int) -> list[Exchange]:
        """The answer to a request and to each redirect that follows, the last one last, all by the one deadline.

        After so many redirects the last answer is one more of them. Every hop is checked as the first one is.
        """
        ends = time.monotonic() + ask.deadline_seconds
        exchanges = [await self.fetch(ask)]
        while len(exchanges) <= redirects and (target := redirect_target(exchanges[-1])) is not None:
            left = max(ends - time.monotonic(), 0.0)
            ask = replace(redirected_request(ask, exchanges[-1], target), deadline_seconds=left)
            exchanges.append(await self.fetch(ask))
        return exchanges

    async def addresses_of(self, url: str) -> list[str]:
        """Where a request for this URL may be sent to; none where it cannot be sent at all."""
        try:
            place = dialling.server_address(dialling.split_url(url)[0])
            return await self._names.addresses(place.host, place.port)
        except FetchError:
            return []

    @property
    def connections(self) -> int:
        """How many there are, idle ones as well."""
        return self._pool.open

    async def close(self) -> None:
        """End all connections."""
        await self._pool.close()

    async def _fetch(self, ask: FetchRequest, sink: BinaryIO | None) -> Exchange:
        origin, target = dialling.split_url(ask.url)
        sending = self._renderer.sending(ask, route_to(origin, ask.exit), target)
        largest = ask.largest_body if ask.method != "HEAD" else sys.maxsize
        incoming = ResponseReader(largest, sink, begin_suffices=ask.begin_suffices)
        began_at, began = clock.now(), time.perf_counter()
        try:
            answered, address = await self._exchange(
                sending, incoming, asyncio.get_running_loop().time() + ask.deadline_seconds
            )
            raw, body = incoming.finish()
        except FetchError as problem:
            if problem.kind != "too_large" or (begun := incoming.begun) is None:
                raise
            answered, address, raw, body = RawResponse(incoming.status, "", b"", incoming, len(begun)), "", begun, begun
        return Exchange(
            url=ask.url,
            status=answered.status,
            head=answered.head,
            headers=incoming.headers,
            raw_body=raw,
            body=body,
            request=sending.head,
            address=address,
            http=answered.http,
            began_at=began_at,
            seconds=time.perf_counter() - began,
            sent_after=incoming.asked_at - began,
            sent_bytes=len(sending.head) + len(sending.body),
            received_bytes=answered.received,
        )

    async def _exchange(
        self, sending: RawRequest, incoming: ResponseReader, deadline: float
    ) -> tuple[RawResponse, str]:
        """Over a connection that is kept, or, where that had ended already, over a new one."""
        try:
            connection = self._pool.take_now(sending.route) or await self._take(sending, deadline, fresh=False)
            return await self._ask(connection, sending, incoming, deadline)
        except StaleConnection:
            if sending.method not in REPEATABLE:
                raise
        return await self._ask(await self._take(sending, deadline, fresh=True), sending, incoming, deadline)

    async def _take(self, sending: RawRequest, deadline: float, *, fresh: bool) -> HttpConnection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.take(sending.route, fresh=fresh)
        except TimeoutError:
            raise DeadlineExceeded() from None

    async def _ask(
        self, connection: HttpConnection, sending: RawRequest, incoming: ResponseReader, deadline: float
    ) -> tuple[RawResponse, str]:
        asyncio.get_running_loop().call_soon(incoming.was_sent)  # transports write at the end of a turn of the loop
        try:
            return await connection.ask(sending, incoming, deadline), connection.address
        finally:
            self._pool.give_back(connection)
