"""How crawls that are not over stand, in numbers, for those who watch many of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from weft.crawl_ports import Counts
from weft.crawls import list_store
from weft.crawls.crawls import Crawls
from weft.crawls.model import Crawl
from weft.crawls.stats import ASKS, ASKS_MET, FETCH_SECONDS, RESPONSES
from weft.db.database import Database
from weft.errors import FrontierDown

log = logging.getLogger(__name__)

MOST = 50
"""Crawls that numbers are told of; those that are going on come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
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


async def measured(db: Database, crawls: Crawls) -> list[Measured]:
    """Every crawl that is going on or rests, as far as they are not too many; none while the frontier is away."""
    unsettled = await db.read(lambda tx: list_store.unsettled(tx, MOST))
    try:
        return [await _measured(db, crawls, crawl_id) for crawl_id in unsettled]
    except FrontierDown as problem:
        log.warning("crawls cannot be counted", extra={"why": str(problem)})
        return []


async def _measured(db: Database, crawls: Crawls, crawl_id: int) -> Measured:
    report = await crawls.report(crawl_id)
    runs = [share.run_id for share in report.shares]
    said = await db.read(lambda tx: list_store.said(tx, runs, (ASKS, ASKS_MET, FETCH_SECONDS, RESPONSES)))
    return Measured(
        crawl=report.crawl,
        counts=report.counts,
        pages_per_second=report.pages_per_second,
        lease_ratio=said[ASKS_MET] / said[ASKS] if said[ASKS] else None,
        fetch_seconds=said[FETCH_SECONDS] / said[RESPONSES] if said[RESPONSES] else None,
    )
