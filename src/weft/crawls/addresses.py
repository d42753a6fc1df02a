"""The delay of an address whose hosts are with several processes: they stand in one line, at their workers' limiter.

Within a process the workbench keeps it (``workbench.py``); where workers share no limiter, only those of one worker
stand in line together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from weft.crawl_ports import Grant
from weft.crawls.model import PermitAsked, Question
from weft.crawls.side_line import SideLine
from weft.fetching.detours import Detours
from weft.fetching.egress import Egress
from weft.fetching.exchange import Ask, Exchange
from weft.fetching.limits import Turns
from weft.fetching.urls import host_of

LONGEST_WAIT_SECONDS = 1.3
"""A place further away is not taken: the limiter may forget it before it is used."""
HIGHEST_RATE = 1_000_000.0
MOST_ADDRESSES = 10
"""Of one host, in whose lines a request waits."""
MOST_HOSTS = 10_000


class InLine:
    """Fetches as what it stands before does, each request at the turn of its address."""

    def __init__(self, way: Egress | Detours, delay_seconds: float, line: SideLine) -> None:
        self._way, self._line = way, line
        self._turns = Turns(_Asked(line, min(1 / delay_seconds, HIGHEST_RATE)))
        self._addresses: dict[str, list[str]] = {}
        """Of hosts that were asked before."""

    async def fetch(self, ask: Ask) -> Exchange:
        host, began = host_of(ask.url), time.perf_counter()
        addresses = self._addresses.get(host) or await self._addresses_of(ask)
        if addresses:
            await self._turns.come([f"address:{each}" for each in addresses[:MOST_ADDRESSES]])
        waited = time.perf_counter() - began
        exchange = await self._way.fetch(ask)
        if exchange.address:
            if len(self._addresses) >= MOST_HOSTS:
                self._addresses.clear()
            self._addresses[host] = [exchange.address]
        exchange.sent_after += waited
        exchange.seconds += waited
        return exchange

    async def _addresses_of(self, ask: Ask) -> list[str]:
        """All that the first request to a host may go to; none where it goes through a proxy, which is found out."""
        if not isinstance(self._way, Egress):
            return []
        try:
            async with asyncio.timeout(ask.deadline_seconds):
                return await self._way.addresses_of(ask.url)
        except TimeoutError:
            return []

    async def close(self) -> None:
        await self._line.close()
        await self._way.close()


class _Asked:
    """The part of a limiter that a place is asked of, at the worker."""

    def __init__(self, line: SideLine, rate: float) -> None:
        self._line, self._rate = line, rate

    async def reserve(self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0) -> Grant:
        wait = min(longest_wait, LONGEST_WAIT_SECONDS)
        answer = await self._line.ask(Question(permit=PermitAsked(list(keys), wait, rate=self._rate)))
        return answer.grant or Grant(False, LONGEST_WAIT_SECONDS)

    def holds(self, grant: Grant) -> bool:
        return grant.granted
