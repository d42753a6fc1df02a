"""How the process is getting on, by Scrapy's names where Scrapy has one: a run's page shows them like a spider's."""

from __future__ import annotations

from collections import Counter

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
FETCH_SECONDS = "crawl/fetch_seconds"
"""From the begin of requests to the last bytes of their answers, added up."""


class Stats:
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
        self.statuses: Counter[int] = Counter()

    def arrived(self, status: int, size: int, seconds: float) -> None:
        """There was an answer."""
        self.responses += 1
        self.bytes += size
        self.fetch_seconds += seconds
        self.statuses[status] += 1

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
        return told
