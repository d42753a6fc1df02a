"""Scrapy's scheduler on a frontier of weft: one spider in many runs, each page fetched once in all.

What a run finds goes to the frontier in batches, and what it fetches comes from there, host by host: it holds a host
for a while and alone asks it. A page is done when its callbacks and pipelines are; what a run that died was given is
given to another. A request that cannot be written as text is made by the run that found it, and dies with it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from array import array
from collections import deque
from typing import Any

from scrapy import Request, signals

from .frontier_turns import Turns
from .hosts import Given, host_of
from .limits import ComingBack
from .requests import NotText, request_of, text_of
from .run_settings import Sharing

KEY = "weft_frontier_key"
"""Where a request carries its key in its ``meta``, through redirects and retries."""
LONGEST_URL, LONGEST_TEXT, HIGHEST_PRIORITY = 8_000, 190_000, 1_000
KNOWN = 1 << 20
"""Requests that are remembered here, so that the frontier is not asked again: each at one place, the last to come."""

log = logging.getLogger("weft")


class FrontierScheduler:
    def __init__(self, crawler: Any) -> None:
        self._crawler, self._stats = crawler, crawler.stats
        self._spider: Any = None
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        self._sharing = Sharing.of(crawler.settings)
        self._turns = Turns(crawler, self._sharing)
        self._hosts = self._turns.hosts
        self._known = array("q", bytes(8 * KNOWN))
        self._local: deque[Request] = deque()
        self._own: set[int] = set()
        """Keys of requests that only this run can make."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> FrontierScheduler:
        return cls(crawler)

    def open(self, spider: Any) -> None:
        self._spider = spider
        connect = self._crawler.signals.connect
        connect(self._reached, signals.request_reached_downloader)
        connect(self._received, signals.response_received)
        connect(self._raised, signals.spider_error)
        self._coming_back = ComingBack(self._crawler, self._hosts)
        self._turns.open()

    def close(self, reason: str) -> None:
        self._turns.close()

    def has_pending_requests(self) -> bool:
        """Whether this run or another may still find something to do."""
        return bool(self._local) or self._turns.is_left

    def __len__(self) -> int:
        return len(self._local) + self._hosts.in_line

    def enqueue_request(self, request: Request) -> bool:
        """False where this run knows the request already. The frontier knows of those of other runs, and drops them."""
        given = self._given(request)
        if given is not None and not given.status:
            return self._go_on(given, request)
        request.meta.pop(KEY, None)  # of the page whose meta it was made with
        key = self._key(request)
        if self._known[key % KNOWN] == key or key in self._own:
            self._stats.inc_value("dupefilter/filtered")
            return False
        self._known[key % KNOWN] = key
        try:
            self._turns.find(self._row(key, request))
        except NotText as why:
            self._keep(key, request, why)
        self._stats.inc_value("scheduler/enqueued")
        return True

    def next_request(self) -> Request | None:
        if self._turns.is_stopping:
            return None
        if self._hosts.supplied < self._sharing.least_hosts:
            self._turns.hunger()  # before a request is given out: it is not in progress until this has returned
        request = self._next_local() or self._next_given()
        if request is not None:
            self._stats.inc_value("scheduler/dequeued")
        return request

    def _given(self, request: Request) -> Given | None:
        return self._hosts.given(request.meta.get(KEY))

    def _key(self, request: Request) -> int:
        mark: bytes = self._fingerprint(request)
        if request.dont_filter and not is_start(request):
            mark = hashlib.sha1(mark + os.urandom(8)).digest()  # noqa: S324 - it has no secrets
        return int.from_bytes(mark[:8], "big", signed=True)

    def _row(self, key: int, request: Request) -> list[Any]:
        """What the frontier is told of a request."""
        url, host = request.url, host_of(request.url)
        if not host:
            raise NotText("its address is none of the web")
        text = text_of(request, self._spider)
        if len(url) > LONGEST_URL or len(text) > LONGEST_TEXT:
            raise NotText(f"it is too long, with {len(url)} and {len(text)} characters")
        priority = max(-HIGHEST_PRIORITY, min(request.priority, HIGHEST_PRIORITY))
        return [key, url, host, max(0, int(request.meta.get("depth") or 0)), priority, 0, 0, text]

    def _keep(self, key: int, request: Request, why: NotText) -> None:
        """Make it here: nobody else could."""
        if not self._own:
            log.warning("some requests are made by this run alone, such as %s: %s", request, why)
        self._own.add(key)
        self._local.append(request)
        self._stats.inc_value("frontier/own")

    def _go_on(self, given: Given, request: Request) -> bool:
        """A middleware answers a request with another: a retry goes back to the frontier, all others are made here."""
        tries = int(request.meta.get("retry_times") or 0)
        if tries > given.tries:
            self._hosts.finish(given, given.again(tries))
            self._stats.inc_value("frontier/retried")
        else:
            given.request, given.waits = request, True
            self._local.append(request)
        return True

    def _next_local(self) -> Request | None:
        if not self._local:
            return None
        request = self._local.popleft()
        given = self._given(request)
        if given is not None:
            given.waits = False
        return request

    def _next_given(self) -> Request | None:
        while (given := self._hosts.next()) is not None:
            try:
                request = request_of(given.url, given.text, self._spider)
            except NotText as why:
                log.error("no request can be made for %s: %s", given.url, why)
                self._hosts.finish(given, given.unreadable(why))
                continue
            request.meta[KEY] = given.key
            if given.tries:
                request.meta["retry_times"] = given.tries
            given.request = request
            return request
        return None

    def _reached(self, request: Request) -> None:
        given = self._given(request)
        if given is not None:
            given.reached = True

    def _received(self, response: Any, request: Request) -> None:
        given = self._given(request)
        if given is not None:
            given.status, given.size = response.status, len(response.body)

    def _raised(self, failure: Any, response: Any) -> None:
        request = getattr(response, "request", None)
        given = self._given(request) if request is not None else None
        if given is not None:
            given.reason = f"{type(failure.value).__name__} in its callback"


def is_start(request: Request) -> bool:
    """Whether a spider begins with it: those are ``dont_filter``, and yet all runs of a spider have the same."""
    meta = request.meta
    return not meta.get("depth") and bool(meta.get("is_start_request", not MARKS_START))


def _marks_start() -> bool:
    try:
        import scrapy.spidermiddlewares.start  # noqa: F401
    except ImportError:  # before Scrapy 2.13
        return False
    return True


MARKS_START = _marks_start()
