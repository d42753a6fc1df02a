"""The stats of a crawl process, under Scrapy's names where Scrapy has one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from weft.metrics import FETCH_BOUNDS
from weft.ports import DONE, QUEUED, Outcome

RESPONSES = "response_received_count"
ITEMS = "item_scraped_count"
BYTES = "downloader/response_bytes"
REQUESTS = "downloader/request_count"
ERRORS = "log_count/ERROR"
RETRIES = "retry/count"
ASKS, ASKS_MET = "crawl/asks", "crawl/asks_met"
"""How often hosts were asked for, and how often any were given."""
HOSTS_LOST = "crawl/hosts_lost"
"""Hosts that were somebody else's when they were reported on."""
FETCH_SECONDS = "weft/fetch_seconds"
"""From the begin of requests to the last bytes of their answers, added up; and, with the upper bound of a bucket behind
it, how many took so long."""
URLS = "crawl/urls/"
"""URLs that were finished, by state; one that was visited again counts again."""


class CrawlStats:
    """Counts that only grow, and gauges beside them."""

    def __init__(self) -> None:
        self.responses = 0
        self.items = 0
        self.bytes = 0
        self.requests = 0
        self.retries = 0
        self.problems = 0
        self.asks = self.asks_met = self.hosts_lost = 0
        self.fetch_seconds = 0.0
        self.fetches = [0] * (len(FETCH_BOUNDS) + 1)
        self.statuses: Counter[int] = Counter()
        self.urls: Counter[str] = Counter()

    def arrived(self, status: int, size: int, seconds: float) -> None:
        """There was an answer."""
        self.responses += 1
        self.bytes += size
        self.fetch_seconds += seconds
        self.fetches[bisect_left(FETCH_BOUNDS, seconds)] += 1
        self.statuses[status] += 1

    def settled(self, outcomes: Iterable[Outcome]) -> None:
        """So ended URLs. One that waits for its next visit was fetched, one that waits for another try was not."""
        for each in outcomes:
            if each.state != QUEUED:
                self.urls[each.state] += 1
            elif each.fetched_at:
                self.urls[DONE] += 1

    def asked(self, given: int) -> None:
        """Hosts were asked for, and so many were given."""
        self.asks += 1
        self.asks_met += given > 0

    def told(self, *, hosts: int, waiting: int, under_way: int) -> dict[str, float | str]:
        """As it goes with a question."""
        told: dict[str, float | str] = {
            REQUESTS: self.requests,
            RESPONSES: self.responses,
            ITEMS: self.items,
            BYTES: self.bytes,
            RETRIES: self.retries,
            ERRORS: self.problems,
            "crawl/hosts": hosts,
            "crawl/queued": waiting,
            "crawl/under_way": under_way,
            ASKS: self.asks,
            ASKS_MET: self.asks_met,
            HOSTS_LOST: self.hosts_lost,
            FETCH_SECONDS: round(self.fetch_seconds, 3),
        }
        for status, count in self.statuses.items():
            told[f"downloader/response_status_count/{status}"] = count
        for state, count in self.urls.items():
            told[URLS + state] = count
        for bound, count in zip((*map("{:g}".format, FETCH_BOUNDS), "+Inf"), self.fetches, strict=True):
            if count:
                told[f"{FETCH_SECONDS}/{bound}"] = count
        return told
