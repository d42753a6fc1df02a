"""Counts of crawls for those who list many: a crawl with very many hosts is not counted anew for each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from weft.clock import Moment
from weft.crawl_ports import Counts, Frontier
from weft.crawls.model import FINISHED, Crawl

FRESH_SECONDS = 1.0
"""How long the counts of a crawl that is not over are told again."""
MOST = 1_000


@dataclass(frozen=True, slots=True)
class _Counted:
    counts: Counts
    at: float
    ended_at: Moment | None


class Counting:
    """Remembers counts: of a crawl that is done until it goes on, of others for a moment."""

    def __init__(self, frontier: Frontier, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._frontier, self._monotonic = frontier, monotonic
        self._counted: dict[int, _Counted] = {}

    async def of(self, crawl: Crawl) -> Counts:
        known, at = self._counted.get(crawl.id), self._monotonic()
        is_over = crawl.state == FINISHED and crawl.ended_at is not None
        if known is not None and (at - known.at < FRESH_SECONDS or (is_over and known.ended_at == crawl.ended_at)):
            return known.counts
        counts = await self._frontier.counts(crawl.id)
        if len(self._counted) >= MOST:
            del self._counted[next(iter(self._counted))]
        self._counted[crawl.id] = _Counted(counts, at, crawl.ended_at if is_over else None)
        return counts
