"""A crawl and what is reported about it: partitions, skips, throughput, WARC files. Values, no I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.clock import Moment
from weft.crawl_spec import CrawlSpec, ScopeSpec
from weft.crawler.messages import ACTIVE, Skip
from weft.crawler.reasons import NOT_KEPT, SUSPECTED
from weft.ports import Counts

IN_DATABASE = "the database"
"""What is said of a frontier that has no URL of its own."""

LAST_TURN = ""
"""Instead of the reason of a skip: which turn of a partition was counted last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """A crawl, as the database knows it."""

    id: int
    project: str
    name: str
    run_id: int | None
    spec: CrawlSpec
    state: str
    reason: str
    seeded: bool
    created_at: Moment
    created_by: str
    ended_at: Moment | None
    hungry_at: Moment = 0
    """When a partition of it last had nothing to do, though others had."""
    frontier: str | None = None
    """Where its URLs are; None: nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlPartition:
    """A run that does a partition of a crawl, or did one."""

    run_id: int
    state: str
    worker: str | None
    attempt: int
    started_at: Moment | None
    finished_at: Moment | None
    outcome: str | None
    reason: str | None
    pages: int = 0
    """Answers that it has had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipTotal:
    """How many addresses were left out for one reason."""

    reason: str
    count: int


def suspected_count(skips: Iterable[SkipTotal]) -> int:
    """Addresses that were skipped on suspicion of a trap, and can be put back in line."""
    return sum(each.count for each in skips if each.reason in SUSPECTED)


def not_kept(skips: Iterable[SkipTotal], spec: CrawlSpec) -> list[SkipTotal]:
    """Links that were dropped by limits that nobody has set, so that pages may be missing. A depth that somebody chose
    leaves out what it should."""
    chosen = {"depth"} if spec.scope.depth != ScopeSpec().depth else set()
    return [each for each in skips if each.reason in NOT_KEPT.keys() - chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputSpan:
    """How fast a crawl was for a while."""

    at: Moment
    pages_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlReport:
    """A crawl and how it is getting on."""

    crawl: Crawl
    counts: Counts
    pages_per_second: float
    """Of late where it is going on; of the whole crawl where it is not."""
    partitions: Sequence[CrawlPartition]
    skips: Sequence[SkipTotal]
    traps: Sequence[Skip]

    @property
    def pages(self) -> int:
        return self.counts.done + self.counts.failed

    @property
    def suspected(self) -> int:
        """Addresses that were skipped on suspicion of a trap, and can be put back in line."""
        return suspected_count(self.skips)

    @property
    def not_kept(self) -> list[SkipTotal]:
        """Links that were dropped by limits that nobody has set; only another crawl can fetch them."""
        return not_kept(self.skips, self.crawl.spec)

    @property
    def left(self) -> int:
        """Pages that are still to be fetched, as far as anybody knows."""
        waiting, budget = self.counts.queued + self.counts.leased, self.crawl.spec.budget.pages
        return max(0, min(waiting, budget - self.pages)) if budget else waiting

    @property
    def seconds_left(self) -> float | None:
        """How long that takes at this speed; None where nobody can say."""
        if self.crawl.state != ACTIVE or self.pages_per_second <= 0:
            return None
        return self.left / self.pages_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class WarcFile:
    """A file of raw exchanges that is kept."""

    name: str
    has_index: bool
    size: int = 0
    """In bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlExplanation:
    """Why an address is not crawled, or that it is."""

    url: str
    """In its one spelling."""
    state: str
    """As the frontier knows it; empty: it does not."""
    reason: str
    """A name for programs."""
    sentence: str


def is_spider_crawl(crawl: Crawl) -> bool:
    """Whether spiders do it, which bring their own addresses."""
    spec = crawl.spec
    return crawl.run_id is not None and spec.tier == "both" and not (spec.urls or spec.sitemaps)


def spider_request_key(url: str) -> int:
    """The key of a plain request for an address, as ``agent/scheduler.py`` has it."""
    from w3lib.url import canonicalize_url  # it comes with Scrapy, and nobody else here needs it

    words = {"method": "GET", "url": canonicalize_url(url), "body": "", "headers": {}}
    mark = hashlib.sha1(json.dumps(words, sort_keys=True).encode()).digest()  # noqa: S324 - Scrapy's choice
    return int.from_bytes(mark[:8], "big", signed=True)
