"""Begins and ends crawls: puts URLs into their frontier, and says why one is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from weft.clock import SECOND, Moment
from weft.crawl_spec import CrawlSpec
from weft.crawler.messages import FINISHED
from weft.crawler.reasons import describe_reason
from weft.crawls.model import Crawl
from weft.errors import Conflict
from weft.ports import FAILED, SKIPPED, Counts, Found, Frontier, Limits, Turn

PER_TURN = 1_000
"""Addresses that are put into a frontier at once."""


def limits_of(spec: CrawlSpec) -> Limits:
    return Limits(pages=spec.budget.pages, pages_per_host=spec.budget.pages_per_host)


def found_urls(urls: Iterable[str]) -> list[Found]:
    """Addresses in their one spelling; what is none is left out."""
    from weft.fetching.urls import canonical, host_of, key_of  # a process that crawls nothing does not load it

    spelled = [url for each in urls if (url := canonical(each)) is not None]
    return [Found(key_of(url), url, host_of(url)) for url in spelled]


async def add_urls(frontier: Frontier, crawl: Crawl, urls: Sequence[str], giver: str) -> int:
    """Put addresses into the frontier of a crawl, and tell how many it did not know. Twice does no harm.

    Only a crawl that has not begun is opened: one that the frontier had and lost is not made up from a few addresses.
    """
    if not crawl.seeded:
        await frontier.open(crawl.id, limits_of(crawl.spec))
    new = 0
    for start in range(0, len(urls), PER_TURN):
        found = found_urls(urls[start : start + PER_TURN])
        new += (await frontier.turn(crawl.id, giver, Turn(found=found))).new
    return new


LOOKED_AT = 500
"""Of so many addresses in a state, and of so many hosts, it is known whether they were asked for a page."""


def state_text(crawl: Crawl) -> str:
    return f"{crawl.state} ({crawl.reason})" if crawl.reason else crawl.state


def joined_with_or(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def time_used_up(crawl: Crawl, at: Moment) -> str:
    """That its time is used up, in words; empty: it is not."""
    seconds = crawl.spec.budget.seconds
    return f"its time of {seconds:g} s is used up" if seconds and at - crawl.created_at > seconds * SECOND else ""


def bytes_used_up(crawl: Crawl, counts: Counts) -> str:
    """That the bytes which it may fetch are used up, in words; empty: they are not."""
    most = crawl.spec.budget.bytes
    return f"its {most} bytes are used up" if most and counts.size >= most else ""


def pages_used_up(crawl: Crawl) -> str:
    budget = crawl.spec.budget
    return f"its budget of {budget.pages or budget.pages_per_host} pages is used up"


async def check_budget(frontier: Frontier, crawl: Crawl, at: Moment, *, known_hosts: bool = False) -> None:
    """Refuse to put more in line of a crawl that is over and could not fetch it, be it of hosts that it knows."""
    if crawl.state != FINISHED:
        return
    spent = await _spent(frontier, crawl, at)
    if not spent and known_hosts:
        spent = await _spent_everywhere(frontier, crawl)
    if spent:
        raise Conflict(f"crawl {crawl.id} is over and cannot go on: {spent}; begin a new one with a larger budget")


async def _spent(frontier: Frontier, crawl: Crawl, at: Moment) -> str:
    """Which budget is used up, so that nothing more is fetched, in words; empty: none."""
    counts, budget = await frontier.counts(crawl.id), crawl.spec.budget
    if found := time_used_up(crawl, at) or bytes_used_up(crawl, counts):
        return found
    has_left_some = counts.queued and not budget.pages_per_host
    if budget.pages and (has_left_some or counts.done + await _pages_without_result(frontier, crawl) >= budget.pages):
        return pages_used_up(crawl)
    return ""


async def _pages_without_result(frontier: Frontier, crawl: Crawl) -> int:
    """How many addresses have cost a page of the budget, although they have brought none."""
    missed = [await frontier.urls(crawl.id, state, limit=LOOKED_AT) for state in (FAILED, SKIPPED)]
    return sum(each.fetched_at > 0 for some in missed for each in some)


async def _spent_everywhere(frontier: Frontier, crawl: Crawl) -> str:
    """That no host which it knows may be asked for one more page, in words; empty: one may."""
    most = crawl.spec.budget.pages_per_host
    found = await frontier.hosts(crawl.id, limit=LOOKED_AT) if most else []
    if not found or len(found) == LOOKED_AT:
        return ""
    is_full = all(each.counts.queued or each.counts.done >= most for each in found)  # it is over, and has left some
    return f"its budget of {most} pages of each host is used up" if is_full else ""


FAILURES_READ = 500
"""Of so many addresses that failed the most frequent reason is told."""


async def why_no_pages(frontier: Frontier, crawl: Crawl) -> str:
    """Why nothing came of a crawl that is over; empty where something did, or nothing was tried."""
    counts = await frontier.counts(crawl.id)
    if counts.done or not counts.failed or _is_to_be_visited_again(crawl, counts):
        return ""
    failed = await frontier.urls(crawl.id, FAILED, limit=FAILURES_READ)
    hosts = {each.host for each in failed}
    where = f"on {hosts.pop()}" if counts.hosts == 1 and hosts else f"on {counts.hosts:,} hosts"
    many = f"its only address {where}" if counts.failed == 1 else f"all {counts.failed:,} addresses {where}"
    [(reason, count)] = Counter(each.reason for each in failed).most_common(1) or [("", 0)]
    mostly = "because" if count == counts.failed else "most often because"
    return f"no page was fetched: {many} failed, {mostly} {describe_reason(reason)}"


def _is_to_be_visited_again(crawl: Crawl, counts: Counts) -> bool:
    """A page that was fetched and will be again is in line, not done."""
    return crawl.spec.revisit.policy != "none" and bool(counts.queued or counts.leased)
