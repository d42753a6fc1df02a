"""Whether a crawl has ended without a single page, and why, in one sentence."""

from __future__ import annotations

from collections import Counter

from weft.crawl_ports import FAILED, Counts, Frontier
from weft.crawls.model import Crawl
from weft.crawls.reasons import sentence

LOOKED_AT = 500
"""Of so many addresses that failed the most frequent reason is told."""


async def told(frontier: Frontier, crawl: Crawl) -> str:
    """Why nothing came of a crawl that is over; empty where something did, or nothing was tried."""
    counts = await frontier.counts(crawl.id)
    if counts.done or not counts.failed or _is_to_be_visited_again(crawl, counts):
        return ""
    failed = await frontier.urls(crawl.id, FAILED, limit=LOOKED_AT)
    hosts = {each.host for each in failed}
    where = f"on {hosts.pop()}" if counts.hosts == 1 and hosts else f"on {counts.hosts:,} hosts"
    many = f"its only address {where}" if counts.failed == 1 else f"all {counts.failed:,} addresses {where}"
    [(reason, count)] = Counter(each.reason for each in failed).most_common(1) or [("", 0)]
    mostly = "because" if count == counts.failed else "most often because"
    return f"no page was fetched: {many} failed, {mostly} {sentence(reason)}"


def _is_to_be_visited_again(crawl: Crawl, counts: Counts) -> bool:
    """A page that was fetched and will be again is in line, not done."""
    return crawl.spec.revisit.policy != "none" and bool(counts.queued or counts.leased)
