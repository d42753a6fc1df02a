"""When a host says that it may be asked again: a 429 or 503 with ``Retry-After`` lets this run leave it alone.

It listens to answers as they come, before Scrapy's middlewares make retries of them, and needs none of its own.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Any

from scrapy import signals

from . import engine
from .hosts import SECOND, Hosts, host_of, now

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
