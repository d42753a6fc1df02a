"""Somebody who fetches one page again and again, as a crawl does: through the egress client, with a deadline."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from weft.address_guard import Guard
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest

AT_ONCE = 4
PAUSE_SECONDS = 0.2
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage"


class Fetcher:
    """Notes when a page came, how long each fetch took at most, and how many connections there were."""

    def __init__(self, url: str, deadline_seconds: float) -> None:
        self._ask = FetchRequest(url=url, deadline_seconds=deadline_seconds)
        self._egress = Egress(Guard(["127.0.0.0/8"]), user_agent="weft-experiment", connections_per_host=AT_ONCE)
        self.came_at = 0.0
        self.slowest = 0.0
        self.most_connections = 0
        self.failures: dict[str, int] = {}

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._egress.close()

    async def fetch_forever(self) -> None:
        await asyncio.gather(*(self._fetch_forever() for _ in range(AT_ONCE)))

    async def _fetch_forever(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._egress.fetch(self._ask)
                self.came_at = time.monotonic()
            except FetchError as problem:
                self.failures[problem.kind] = self.failures.get(problem.kind, 0) + 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.most_connections = max(self.most_connections, self._egress.connections)
            await asyncio.sleep(PAUSE_SECONDS)


async def give_pages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A site with one page."""
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(PAGE)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()
