"""The one way out: every fetch of weft leaves here, within limits, and only to addresses that may be connected to."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from weft import clock
from weft.addresses import Guard
from weft.fetching import following, places
from weft.fetching.connections import Connection, Pool
from weft.fetching.dialling import Dialler, route_to
from weft.fetching.exchange import Ask, Exchange, NoAnswer
from weft.fetching.incoming import Incoming
from weft.fetching.resolving import CheckedNames, Resolver
from weft.fetching.sending import Answered, Late, Renderer, Sending, Stale

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
        self._names = CheckedNames(guard, resolver)
        dialler = Dialler(self._names, verify_tls=verify_tls, http2=http2)
        limits = {"per_host": connections_per_host, "most": connections, "most_idle": idle_connections}
        self._pool = Pool(dialler, **limits, idle_seconds=idle_seconds)
        self._renderer = Renderer(user_agent)

    async def fetch(self, ask: Ask) -> Exchange:
        """One request and its whole answer, whatever its status; ``NoAnswer`` where there is none by the deadline."""
        return await self._fetch(ask, None)

    async def fetch_to(self, ask: Ask, path: Path) -> Exchange:
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

    async def fetch_following(self, ask: Ask, redirects: int) -> list[Exchange]:
        """The answer to a request and to each redirect that follows, the last one last, all by the one deadline.

        After so many redirects the last answer is one more of them. Every hop is checked as the first one is.
        """
        ends = time.monotonic() + ask.deadline_seconds
        exchanges = [await self.fetch(ask)]
        while len(exchanges) <= redirects and (target := following.location(exchanges[-1])) is not None:
            left = max(ends - time.monotonic(), 0.0)
            ask = replace(following.next_ask(ask, exchanges[-1], target), deadline_seconds=left)
            exchanges.append(await self.fetch(ask))
        return exchanges

    async def addresses_of(self, url: str) -> list[str]:
        """Where a request for this URL may be sent to; none where it cannot be sent at all."""
        try:
            place = places.place_of(places.split(url)[0])
            return await self._names.addresses(place.host, place.port)
        except NoAnswer:
            return []

    @property
    def connections(self) -> int:
        """How many there are, idle ones as well."""
        return self._pool.open

    async def close(self) -> None:
        """End all connections."""
        await self._pool.close()

    async def _fetch(self, ask: Ask, sink: BinaryIO | None) -> Exchange:
        origin, target = places.split(ask.url)
        sending = self._renderer.sending(ask, route_to(origin, ask.exit), target)
        largest = ask.largest_body if ask.method != "HEAD" else sys.maxsize
        incoming = Incoming(largest, sink, begin_suffices=ask.begin_suffices)
        began_at, began = clock.now(), time.perf_counter()
        try:
            answered, address = await self._exchange(
                sending, incoming, asyncio.get_running_loop().time() + ask.deadline_seconds
            )
            raw, body = incoming.finish()
        except NoAnswer as problem:
            if problem.kind != "too_large" or (begun := incoming.begun) is None:
                raise
            answered, address, raw, body = Answered(incoming.status, "", b"", incoming, len(begun)), "", begun, begun
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

    async def _exchange(self, sending: Sending, incoming: Incoming, deadline: float) -> tuple[Answered, str]:
        """Over a connection that is kept, or, where that had ended already, over a new one."""
        try:
            connection = self._pool.take_now(sending.route) or await self._take(sending, deadline, fresh=False)
            return await self._ask(connection, sending, incoming, deadline)
        except Stale:
            if sending.method not in REPEATABLE:
                raise
        return await self._ask(await self._take(sending, deadline, fresh=True), sending, incoming, deadline)

    async def _take(self, sending: Sending, deadline: float, *, fresh: bool) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.take(sending.route, fresh=fresh)
        except TimeoutError:
            raise Late() from None

    async def _ask(
        self, connection: Connection, sending: Sending, incoming: Incoming, deadline: float
    ) -> tuple[Answered, str]:
        asyncio.get_running_loop().call_soon(incoming.was_sent)  # transports write at the end of a turn of the loop
        try:
            return await connection.ask(sending, incoming, deadline), connection.address
        finally:
            self._pool.give_back(connection)
