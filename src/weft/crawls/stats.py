"""How the process is getting on, by Scrapy's names where Scrapy has one: a run's page shows them like a spider's."""

from __future__ import annotations

from collections import Counter

RESPONSES = "response_received_count"
ITEMS = "item_scraped_count"
BYTES = "downloader/response_bytes"
REQUESTS = "downloader/request_count"
ERRORS = "log_count/ERROR"
RETRIES = "retry/count"


class Stats:
    """Counts that only grow, and gauges beside them."""

    def __init__(self) -> None:
        self.responses = 0
        self.items = 0
        self.bytes = 0
        self.requests = 0
        self.retries = 0
        self.problems = 0
        self.statuses: Counter[int] = Counter()

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
        }
        for status, count in self.statuses.items():
            told[f"downloader/response_status_count/{status}"] = count
        return told
