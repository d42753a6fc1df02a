"""Explains why a URL is not crawled, in one sentence."""

from __future__ import annotations

from weft.clock import SECOND, Moment, iso
from weft.crawler.messages import ACTIVE
from weft.crawler.politeness import read_state
from weft.crawler.reasons import describe_reason
from weft.crawler.robots import UNREACHABLE, RobotsRules, token_of
from weft.crawler.scope import ScopeFilter
from weft.crawler.traps import TrapDetector
from weft.crawls.model import Crawl, UrlExplanation, is_spider_crawl, spider_request_key
from weft.crawls.project_scope import host_for
from weft.errors import Invalid
from weft.fetching.urls import Canonicalizer, host_of, key_of, origin_of
from weft.ports import DONE, FAILED, LEASED, QUEUED, Frontier, Known, KnownHost

NOT_ASKED = "no page that was fetched made the spider ask for it"
PAGE, PAGES = 100, 5
"""How many hosts are looked through for one of them: their names are alike, so that there are few."""


async def explain(frontier: Frontier, crawl: Crawl, url: str, now: Moment) -> UrlExplanation:
    """What the frontier knows of the address; where it knows nothing, what the crawl would do with it."""
    spec = crawl.spec
    found = Canonicalizer(spec.traps.keep_tracking, spec.traps.drop_parameters).canonical(url)
    if found is None:
        raise Invalid("url", url, "it must be an http or https address")
    of_spider = is_spider_crawl(crawl)
    known = await frontier.look(crawl.id, spider_request_key(url) if of_spider else key_of(found))
    host = await _host(frontier, crawl.id, host_of(found))
    host = host_for(crawl.project, host, now) if host is not None else None
    if known is not None:
        return UrlExplanation(
            url=found, state=known.state, reason=known.reason, sentence=_of_known(crawl, known, host, now)
        )
    reason, words = ("not_found", NOT_ASKED) if of_spider else _of_unknown(crawl, found, host)
    return UrlExplanation(url=found, state="", reason=reason, sentence=words)


def _of_known(crawl: Crawl, known: Known, host: KnownHost | None, now: Moment) -> str:
    if known.state == DONE:
        return _of_done(known)
    if known.state == FAILED:
        tries = f"after {known.tries} tries" if known.tries > 1 else "and is not tried again"
        return f"it failed {tries}: {_reason(known)}"
    if known.state == LEASED:
        return f"it is about to be fetched{f' by run {run}' if (run := _holder(host)) else ''}"
    if known.state == QUEUED:
        return _of_queued(crawl, known, host, now)
    return _reason(known)


def _of_done(known: Known) -> str:
    when = f" at {iso(known.fetched_at)}" if known.fetched_at else ""
    status = f", with status {known.status}" if known.status else ""
    because = f" ({_reason(known)})" if known.reason else ""
    return f"it was crawled{when}{status}{because}"


def _of_queued(crawl: Crawl, known: Known, host: KnownHost | None, now: Moment) -> str:
    if crawl.state != ACTIVE:
        return f"it is in line, but the crawl is {crawl.state}{f': {crawl.reason}' if crawl.reason else ''}"
    if known.next_at > now + SECOND:
        tried = f" after {known.tries} tries that failed ({_reason(known)})" if known.tries else ""
        return f"it is in line{tried}, and its turn is not before {iso(known.next_at)}"
    if host is not None and host.next_at > now + SECOND:
        return (
            f"it is in line, and its host {known.host} is left alone until {iso(host.next_at)}{_problem(known, host)}"
        )
    ahead = "" if host is None or host.counts.queued < 2 else f", one of {host.counts.queued} of its host"
    return f"it is in line{ahead}" + (f"; run {run} holds its host" if (run := _holder(host)) else "")


def _holder(host: KnownHost | None) -> str:
    """The number of the run that holds it; empty: nobody."""
    return "" if host is None else host.holder.partition(":")[0]


def _problem(known: Known, host: KnownHost) -> str:
    """What went wrong with a host that is left alone, where its state tells."""
    state = read_state(host.state)
    kept = state.robots.get(origin_of(known.url))
    if kept is not None and kept.found == UNREACHABLE:
        return ", because its robots.txt could not be read"
    return f", because it failed {state.errors} times in a row" if state.errors > 1 else ""


def _of_unknown(crawl: Crawl, url: str, host: KnownHost | None) -> tuple[str, str]:
    """A name and a sentence for an address that never came to the frontier."""
    spec = crawl.spec
    if reason := ScopeFilter(spec, spec.urls).refuses(url, 1):
        return reason, describe_reason(reason)
    if trap := TrapDetector(spec).refuses(url):
        return trap[0], describe_reason(trap[0], pattern=trap[1])
    if spec.politeness.robots and (refused := _robots(url, spec.fetching.user_agent, host)):
        return refused, describe_reason(refused)
    if not spec.follow:
        return "not_a_seed", "the crawl follows no links, and this is none of the addresses that it was given"
    return "not_found", "no page that was fetched links to it"


def _robots(url: str, user_agent: str, host: KnownHost | None) -> str:
    kept = None if host is None else read_state(host.state).robots.get(origin_of(url))
    if kept is None:
        return ""
    if kept.found == UNREACHABLE:
        return "robots_unreachable"
    return "" if RobotsRules(kept.text, token_of(user_agent or "weft")).allows(url) else "robots"


def _reason(known: Known) -> str:
    return (
        describe_reason(known.reason, url=known.url, status=known.status) if known.reason else f"status {known.status}"
    )


async def _host(frontier: Frontier, crawl_id: int, name: str) -> KnownHost | None:
    """A host by its name: frontiers list them in order."""
    after = name[:-1]
    for _ in range(PAGES):
        found = await frontier.hosts(crawl_id, after, PAGE)
        for each in found:
            if each.host == name:
                return each
        if len(found) < PAGE or found[-1].host > name:
            return None
        after = found[-1].host
    return None
