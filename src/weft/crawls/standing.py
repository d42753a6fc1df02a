"""In which state a crawl is, in words, and whether it can go on at all."""

from __future__ import annotations

from collections.abc import Sequence

from weft.clock import SECOND, Moment
from weft.crawl_ports import FAILED, SKIPPED, Counts, Frontier
from weft.crawls.model import FINISHED, Crawl
from weft.errors import Conflict

LOOKED_AT = 500
"""Of so many addresses in a state, and of so many hosts, it is known whether they were asked for a page."""


def told(crawl: Crawl) -> str:
    return f"{crawl.state} ({crawl.reason})" if crawl.reason else crawl.state


def either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def outlived(crawl: Crawl, at: Moment) -> str:
    """That its time is used up, in words; empty: it is not."""
    seconds = crawl.spec.budget.seconds
    return f"its time of {seconds:g} s is used up" if seconds and at - crawl.created_at > seconds * SECOND else ""


def outgrown(crawl: Crawl, counts: Counts) -> str:
    """That the bytes which it may fetch are used up, in words; empty: they are not."""
    most = crawl.spec.budget.bytes
    return f"its {most} bytes are used up" if most and counts.size >= most else ""


def paged_out(crawl: Crawl) -> str:
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
    if found := outlived(crawl, at) or outgrown(crawl, counts):
        return found
    has_left_some = counts.queued and not budget.pages_per_host
    if budget.pages and (has_left_some or counts.done + await _asked(frontier, crawl) >= budget.pages):
        return paged_out(crawl)
    return ""


async def _asked(frontier: Frontier, crawl: Crawl) -> int:
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
