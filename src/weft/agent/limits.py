"""A permit for each request, so that all spiders together ask a host no more often than allowed; ``Retry-After``."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Any

from scrapy import signals

from . import engine
from .hosts import SECOND, Hosts, host_of, now
from .worker_channel import WayLine, pause

REFUSALS = (429, 503)
LONGEST_SECONDS = 3_600.0
"""Nobody is left alone for longer because of one answer."""
A_LITTLE_SECONDS = 0.05
"""More than was asked for, since an answer travels."""


class ComingBack:
    """Puts off what is in line of a host that asks for it."""

    def __init__(self, crawler: Any, hosts: Hosts) -> None:
        self._crawler, self._hosts = crawler, hosts
        crawler.signals.connect(self._downloaded, signals.response_downloaded)

    def _downloaded(self, response: Any, request: Any) -> None:
        if response.status not in REFUSALS:
            return
        seconds = min(retry_after(response.headers.get("Retry-After")), LONGEST_SECONDS)
        if seconds > 0:
            wait = seconds + A_LITTLE_SECONDS
            self._hosts.rest(host_of(request.url), now() + round(wait * SECOND))
            engine.later(wait, lambda: engine.wake(self._crawler))
            self._crawler.stats.inc_value("frontier/hosts_put_off")


def retry_after(value: Any) -> float:
    """Seconds to wait by a Retry-After header, which names seconds or a date; 0 where it is neither."""
    text = (value or b"").decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0


LONGEST_WAIT_SECONDS = 1.3
"""A place further away is not taken: the limiter may forget it before it is used."""
LATE_SECONDS = 0.1
SOON_SECONDS = 0.01
AWAY_SECONDS = 1.0
"""When to ask again where the worker has no answer."""


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
        wait = float(grant.get("wait_seconds", AWAY_SECONDS))
        if not grant.get("granted"):
            await pause(min(max(wait, SOON_SECONDS), 10.0))
            return False
        if wait > 0:
            await pause(wait)
        travel = float(grant.get("travel_seconds") or 0.0)
        return time.monotonic() <= asked_at + travel + wait + LATE_SECONDS

    def _close(self) -> None:
        self._line.close()
