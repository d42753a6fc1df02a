"""A permit for each request: all spiders of weft together ask a host no more often than it is allowed.

``DOWNLOADER_MIDDLEWARES = {"weft.agent.limits.PermitMiddleware": 990}``. Redirects and retries need one as well.
"""

from __future__ import annotations

import time
from typing import Any

from scrapy import signals

from .coming_back import LONGEST_SECONDS, REFUSALS, retry_after
from .hosts import host_of
from .way_line import WayLine, pause

LONGEST_WAIT_SECONDS = 1.3
"""A place further away is not taken: the limiter may forget it before it is used."""
LATE_SECONDS = 0.1
SOON_SECONDS = 0.01


class PermitMiddleware:
    def __init__(self, crawler: Any) -> None:
        self._line, self._stats = WayLine.of(crawler), crawler.stats
        crawler.signals.connect(self._close, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Any) -> PermitMiddleware:
        return cls(crawler)

    async def process_request(self, request: Any, spider: Any = None) -> None:
        """Wait for one's turn."""
        if not request.url.startswith(("http:", "https:")):
            return
        key, began = f"host:{host_of(request.url)}", time.monotonic()
        while not await self._comes(key):
            pass
        self._stats.inc_value("weft/permits")
        self._stats.max_value("weft/permit_seconds_max", time.monotonic() - began)

    def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        """Let nobody ask a host that says when to come back, before then."""
        if response.status in REFUSALS and (seconds := retry_after(response.headers.get("Retry-After"))) > 0:
            keys = [f"host:{host_of(request.url)}"]
            self._line.tell({"permit": {"keys": keys, "penalty": min(seconds, LONGEST_SECONDS)}})
        return response

    async def _comes(self, key: str) -> bool:
        asked_at = time.monotonic()
        answer = await self._line.ask({"permit": {"keys": [key], "longest_wait": LONGEST_WAIT_SECONDS}})
        grant = answer.get("grant") or {}
        wait = float(grant.get("wait_seconds") or 0.0)
        if not grant.get("granted"):
            await pause(min(max(wait, SOON_SECONDS), 10.0))
            return False
        if wait > 0:
            await pause(wait)
        return time.monotonic() <= asked_at + wait + LATE_SECONDS

    def _close(self) -> None:
        self._line.close()
