"""Asks another host for the robots.txt of a host that says it is there.

Where this process holds the other host too, the request is one of that host's own: it waits for its turn there. Else it
takes a place in the line of that host at the worker's limiter, in which spiders stand too, so that a thousand hosts
whose robots.txt is in one place do not ask for it at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from weft.clock import SECOND, Moment
from weft.crawl_ports import Grant
from weft.crawls.model import PermitAsked, Question
from weft.crawls.politeness import FIRST_REST_SECONDS, retry_after
from weft.crawls.side_line import SideLine
from weft.crawls.steady import steady
from weft.crawls.workbench import Held, Workbench
from weft.fetching.detours import PutOff
from weft.fetching.exchange import Ask, Exchange, NoAnswer
from weft.fetching.limits import LATE_SECONDS
from weft.fetching.urls import host_of

REFUSALS = frozenset((429, 503))
LONGEST_WAIT: Moment = 5 * SECOND
"""A turn of a host that is held; who would wait longer comes again."""
LONGEST_PLACE_SECONDS = 1.3
"""A place further away is not taken: the limiter may forget it before it is used."""
LONGEST_PENALTY_SECONDS = 86_400.0
LOOK_SECONDS = 0.02
NOT_NOW = "its robots.txt is on another host, whose turn it is not"


class Way(Protocol):
    """How requests leave this process."""

    async def fetch(self, ask: Ask) -> Exchange: ...


class Abroad:
    """Fetches for one host from another. Raises ``PutOff`` where the other may not be asked soon, and ``NoAnswer``."""

    def __init__(self, bench: Workbench, way: Way, line: SideLine) -> None:
        self._bench, self._way, self._line = bench, way, line

    async def fetch(self, guest: Held, ask: Ask) -> Exchange:
        """``guest`` is held, and is asked for nothing meanwhile."""
        name = host_of(ask.url)
        host = self._bench.hosts.get(name)
        guest.busy -= 1
        try:
            return await (self._by_permit(name, ask) if host is None else self._as_its_own(host, ask))
        finally:
            guest.busy += 1

    async def _as_its_own(self, host: Held, ask: Ask) -> Exchange:
        await self._come(host)
        try:
            if host.gone or host.until <= steady():
                raise PutOff("in_line", NOT_NOW, 1.0)
            exchange = await self._way.fetch(ask)
        except NoAnswer:
            host.manners.wait_one_delay(steady())
            raise
        finally:
            self._bench.leave(host)
        at = steady()
        host.manners.was_sent(round(exchange.sent_after * SECOND))
        host.manners.state.address = exchange.address
        if exchange.status in REFUSALS:
            host.manners.refused(at, retry_after(exchange.header(b"retry-after"), at))
        host.saved = False
        return exchange

    async def _come(self, host: Held) -> None:
        """Wait for the next turn of a host, in which nothing else of it is under way."""
        due = self._bench.reserve(host, LONGEST_WAIT)
        try:
            while (wait := due - steady()) > 0 or not self._bench.enter(host):  # noqa: ASYNC110 - a rare one
                await asyncio.sleep(max(wait / SECOND, LOOK_SECONDS))
        except asyncio.CancelledError:
            host.guests -= 1
            raise

    async def _by_permit(self, name: str, ask: Ask) -> Exchange:
        key, asked_at = f"host:{name}", time.monotonic()
        grant = await self._permit(PermitAsked([key], LONGEST_PLACE_SECONDS))
        if grant.granted:
            await asyncio.sleep(grant.wait_seconds)
        if not grant.granted or time.monotonic() > asked_at + grant.wait_seconds + LATE_SECONDS:
            raise PutOff("in_line", NOT_NOW, grant.wait_seconds)
        exchange = await self._way.fetch(ask)
        if exchange.status in REFUSALS:
            told = retry_after(exchange.header(b"retry-after"), steady())
            penalty = FIRST_REST_SECONDS if told is None else min(told, LONGEST_PENALTY_SECONDS)
            await self._permit(PermitAsked([key], penalty=penalty))
        return exchange

    async def _permit(self, asked: PermitAsked) -> Grant:
        return (await self._line.ask(Question(permit=asked))).grant or Grant(False, LONGEST_PLACE_SECONDS)

    async def close(self) -> None:
        await self._line.close()
