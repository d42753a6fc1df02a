"""Measures the crawls that are active or paused, for metrics."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from weft.crawler.stats import ASKS, ASKS_MET, FETCH_SECONDS, RESPONSES
from weft.crawls import store
from weft.crawls.crawls import Crawls
from weft.crawls.model import Crawl
from weft.db.database import Database
from weft.errors import FrontierDown, FrontierElsewhere
from weft.ports import Counts

log = logging.getLogger(__name__)

MOST_MEASURED = 50
"""Crawls that numbers are told of; those that are going on come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlMetrics:
    """One crawl in numbers; None: nobody knows yet."""

    crawl: Crawl
    counts: Counts
    pages_per_second: float
    lease_ratio: float | None
    """How many of the questions for hosts were answered with any."""
    fetch_seconds: float | None
    """How long an answer takes, on average."""

    @property
    def backlog(self) -> int:
        return self.counts.queued + self.counts.leased

    @property
    def success_ratio(self) -> float | None:
        """How many of the pages that were fetched did not fail."""
        fetched = self.counts.done + self.counts.failed
        return self.counts.done / fetched if fetched else None


async def measure_crawls(db: Database, crawls: Crawls) -> list[CrawlMetrics]:
    """Every crawl that is going on or rests, as far as they are not too many; none while the frontier is away."""
    unsettled = await db.read(lambda tx: store.unfinished(tx, MOST_MEASURED))
    try:
        found = [await _measure(db, crawls, crawl_id) for crawl_id in unsettled]
    except FrontierDown as problem:
        log.warning("crawls cannot be counted", extra={"why": str(problem)})
        return []
    return [each for each in found if each is not None]


async def _measure(db: Database, crawls: Crawls, crawl_id: int) -> CrawlMetrics | None:
    """None where its URLs are in another frontier than this process uses."""
    try:
        report = await crawls.report(crawl_id)
    except FrontierElsewhere:
        return None
    runs = [partition.run_id for partition in report.partitions]
    said = await db.read(lambda tx: store.reported_stats(tx, runs, (ASKS, ASKS_MET, FETCH_SECONDS, RESPONSES)))
    return CrawlMetrics(
        crawl=report.crawl,
        counts=report.counts,
        pages_per_second=report.pages_per_second,
        lease_ratio=said[ASKS_MET] / said[ASKS] if said[ASKS] else None,
        fetch_seconds=said[FETCH_SECONDS] / said[RESPONSES] if said[RESPONSES] else None,
    )
