"""How addresses come to a crawl besides those that it finds: its seeds, lists of people, what another discovers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.crawl_ports import Found, Frontier, Limits, Turn
from weft.crawl_spec import CrawlSpec
from weft.crawls.model import Crawl

PER_TURN = 1_000
"""Addresses that are put into a frontier at once."""


def limits_of(spec: CrawlSpec) -> Limits:
    return Limits(pages=spec.budget.pages, pages_per_host=spec.budget.pages_per_host)


def found_of(urls: Iterable[str]) -> list[Found]:
    """Addresses in their one spelling; what is none is left out."""
    from weft.fetching.urls import canonical, host_of, key_of  # a process that crawls nothing does not load it

    spelled = [url for each in urls if (url := canonical(each)) is not None]
    return [Found(key_of(url), url, host_of(url)) for url in spelled]


async def give(frontier: Frontier, crawl: Crawl, urls: Sequence[str], giver: str) -> int:
    """Put addresses into the frontier of a crawl, and tell how many it did not know. Twice does no harm.

    Only a crawl that has not begun is opened: one that the frontier had and lost is not made up from a few addresses.
    """
    if not crawl.seeded:
        await frontier.open(crawl.id, limits_of(crawl.spec))
    new = 0
    for start in range(0, len(urls), PER_TURN):
        found = found_of(urls[start : start + PER_TURN])
        new += (await frontier.turn(crawl.id, giver, Turn(found=found))).new
    return new
