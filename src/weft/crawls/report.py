"""What people and programs are told of a crawl. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.clock import Moment
from weft.crawl_ports import Counts
from weft.crawls.model import ACTIVE, Crawl, Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A run that does a share of a crawl, or did one."""

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
class SkipSum:
    """How many addresses were left out for one reason."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """How fast a crawl was for a while."""

    at: Moment
    pages_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A crawl and how it is getting on."""

    crawl: Crawl
    counts: Counts
    pages_per_second: float
    """Of late where it is going on; of the whole crawl where it is not."""
    shares: Sequence[Share]
    skips: Sequence[SkipSum]
    traps: Sequence[Skip]

    @property
    def pages(self) -> int:
        return self.counts.done + self.counts.failed

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
class Why:
    """Why an address is not crawled, or that it is."""

    url: str
    """In its one spelling."""
    state: str
    """As the frontier knows it; empty: it does not."""
    reason: str
    """A name for programs."""
    sentence: str
