"""The way out for a crawl with a proxy plan: as ``egress.py``, each request by the way that its site needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from weft.fetching.egress import Egress
from weft.fetching.exchange import Ask, Exchange, NoAnswer
from weft.fetching.proxy_plan import BLOCKS
from weft.fetching.urls import host_of
from weft.fetching.verdicts import verdict_of, verdict_of_silence
from weft.fetching.ways import SitePaused, Way, Ways

PLAIN_REFUSALS = frozenset((429, 503))
"""Who answers with these says when to come back, and is listened to."""
LONGEST_PAUSE_SECONDS = 600.0
"""A site that has blocked every way is looked at again after so long."""
LAST_WORD_SECONDS = 5.0


class PutOff(NoAnswer):
    """The page is not to be had this way: try again after so many seconds, perhaps by another."""

    def __init__(self, kind: str, sentence: str, seconds: float = 0.0) -> None:
        super().__init__(kind, sentence)
        self.seconds = seconds


class Detours:
    """Fetches as an egress does. A page that a site blocks is put off, since the next way may be another."""

    def __init__(self, egress: Egress, ways: Ways, hang_up: Callable[[], Awaitable[None]]) -> None:
        self._egress, self._ways, self._hang_up = egress, ways, hang_up
        self._telling: asyncio.Task[None] | None = None

    async def fetch(self, ask: Ask) -> Exchange:
        """One request. Raises ``PutOff`` besides ``NoAnswer``."""
        if self._telling is None:
            self._telling = asyncio.create_task(self._ways.tell_on())
        site, began = host_of(ask.url), time.perf_counter()
        try:
            way = await self._ways.choose(site)
        except SitePaused as paused:
            raise PutOff("site_paused", str(paused), paused.seconds) from paused
        waited = time.perf_counter() - began
        exchange = await self._fetch(ask, way)
        exchange.sent_after += waited
        exchange.seconds += waited
        verdict = verdict_of(exchange, self._ways.rules)
        self._ways.tell(way, verdict, exchange.sent_bytes, exchange.received_bytes, exchange.seconds)
        if verdict not in BLOCKS or ask.begin_suffices or exchange.status in PLAIN_REFUSALS:
            return exchange
        if not self._ways.covers(site):
            return exchange
        raise PutOff("blocked", f"{site} does not let this request through")

    async def _fetch(self, ask: Ask, way: Way) -> Exchange:
        try:
            return await self._egress.fetch(replace(ask, exit=way.exit))
        except NoAnswer as problem:
            self._ways.tell(way, verdict_of_silence(problem, way.exit is not None))
            raise
        except BaseException:
            self._ways.tell(way, None)
            raise

    async def close(self) -> None:
        """Tell what was not told yet, and end all connections."""
        if self._telling is not None:
            self._telling.cancel()
        with suppress(Exception):  # whoever would listen may be gone
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await self._ways.tell_all()
        await self._hang_up()
        await self._egress.close()
