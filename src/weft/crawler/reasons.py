"""Why URLs are skipped, pages are not kept and hosts are in trouble: a name for programs, a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable
from string import Formatter
from typing import TYPE_CHECKING, Protocol

import msgspec

from weft.ports import FAILED, REQUEUED, SKIPPED

if TYPE_CHECKING:
    from weft.fetching.model import FetchError
    from weft.ports import KnownHost

REASONS = {
    "scope": "it lies outside of what the crawl may fetch",
    "allow": "it matches none of the patterns that the crawl allows",
    "deny": "it matches a pattern that the crawl denies",
    "depth": "it is more links away from a seed than the crawl may go",
    "nofollow": "the link to it is marked nofollow",
    "noindex": "the page asks not to be kept",
    "canonical": "the page names another address as its canonical form",
    "robots": "robots.txt does not allow it",
    "robots_unreachable": "robots.txt could not be read, so that nothing of the host is fetched",
    "crawl_delay": "robots.txt asks for a longer delay than the crawl waits, so that the host is parked",
    "parked": "its host failed again and again and is left alone for a while",
    "refused": "the server asked to come back later",
    "budget": "the crawl may fetch no more pages",
    "budget_host": "the crawl may fetch no more pages of this host",
    "redirect": "it leads to another address",
    "redirects": "it is one redirect too many",
    "redirect_nowhere": "it leads to no address of the web",
    "unchanged": "it has not changed since the last visit",
    "sitemap": "it is a sitemap, whose addresses were taken",
    "sitemap_host": "a sitemap of another host names it",
    "sitemap_limit": "a sitemap lists more addresses, or leads through more sitemaps, than are taken",
    "item_too_large": "what is kept of it would be too large for an item",
    "fields_missing": "it lacks a field that the crawl requires",
    "parser": "a parser would take too long with it, so that only its title and links were read",
    "url_length": "trap suspected: the address is too long",
    "segments": "trap suspected: its path is too deep",
    "repeats": "trap suspected: {pattern} repeats itself",
    "pattern": "trap suspected: too many addresses are like {pattern}",
    "calendar": "trap suspected: a calendar that does not end ({pattern})",
    "near_duplicates": "trap suspected: pages like {pattern} are all alike",
    "suspects": "trap suspected: more addresses are suspected than the crawl keeps",
    "soft_404": "the server answers the same for pages that do not exist",
    "links_per_page": "a page has more links than are taken from one",
    "refused_address": "its host has an address that must not be asked",
    "name": "the name of its host is not known",
    "connect": "nobody answers at its address",
    "tls": "no secure connection could be made",
    "deadline": "it took longer than a fetch may take",
    "cut": "the connection was cut before the end of the page",
    "protocol": "the server did not speak HTTP as it should",
    "headers": "the headers of the answer are too many or too large",
    "too_large": "it is larger than what is kept of a page",
    "proxy": "the proxy did not do its part",
    "blocked": "its site lets nobody through by the ways that were tried",
    "site_paused": "its site has blocked every way; it is asked again later",
    "url": "it is no address of the web",
    "link_length": "a link is longer than an address may be",
    REQUEUED: "it was put back in line",
}
TRAPS = frozenset(("url_length", "segments", "repeats", "pattern", "calendar", "near_duplicates", "suspects"))
"""Those that speak of the site and not of one address."""
SUSPECTED = TRAPS - {"suspects"} | {"soft_404"}
"""Skipped on suspicion of a trap: the frontier has each of these addresses, and can put it back in line."""
NOT_KEPT = {
    "suspects": "set traps.level to off (--traps off)",
    "links_per_page": "raise traps.links_per_page (--spec-file)",
    "sitemap_limit": "name the other sitemaps or addresses yourself (--sitemap, --from-file)",
    "depth": "begin at the deepest pages that were fetched",
    "link_length": "",
}
"""Limits that nobody set for a crawl, by which links of it were dropped: no frontier has them, so nothing can put them
in line. With what a new crawl must do to fetch them; empty: no crawl can."""
COUNTED_REASONS = {
    SKIPPED: SUSPECTED | {"robots", "crawl_delay", "noindex", "canonical", "fields_missing"},
    FAILED: frozenset(
        ("robots_unreachable", "parked", "too_large", "refused_address", "url", "headers", "name", "connect", "tls")
    ),
}
"""Reasons that are counted once for each address that the frontier has in a state."""


class _Gaps(dict[str, object]):
    """A gap that nothing is known for."""

    def __missing__(self, name: str) -> str:
        return {"pattern": "these addresses"}.get(name, "…")


def describe_reason(reason: str, **gaps: object) -> str:
    """What the name of a reason means; a name that is none means itself."""
    status = reason.removeprefix("status_")
    if status != reason and status.isdecimal():
        return f"the server answered with status {status}"
    known = REASONS.get(reason)
    if known is None:
        return reason
    return Formatter().vformat(known, (), _Gaps({name: value for name, value in gaps.items() if value}))


def skipped_on_suspicion(count: int) -> str:
    """That pages are missing because they may be a part of a trap."""
    return f"{count:,} {'page was' if count == 1 else 'pages were'} skipped on suspicion of a trap"


def links_not_kept(count: int) -> str:
    """That pages may be missing because links to them were dropped."""
    return f"{count:,} {'link was' if count == 1 else 'links were'} not kept"


def how_to_fetch(reasons: Iterable[str], links: str = "them") -> str:
    """How links that were not kept for these reasons are fetched all the same."""
    dropped = set(reasons)
    remedies = [remedy for reason, remedy in NOT_KEPT.items() if reason in dropped and remedy]
    if not remedies:
        return f"no crawl can fetch {links}: they are longer than an address may be"
    return f"to fetch {links}, start a new crawl: {'; '.join(remedies)}"


LONGEST_PROBLEM = 200


class _HostProblem(msgspec.Struct):
    """The part of a host's state that this is about."""

    trouble: str = ""


class HostHolder(Protocol):
    """A run that holds hosts while it is running, as far as this is about it."""

    @property
    def run_id(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def state(self) -> str: ...


def status_problem(status: int) -> str:
    return f"answers with status {status}"


def error_problem(problem: FetchError) -> str:
    """The same where there is no answer; it is told beside the host, which need not stand in it again."""
    words = str(problem).rpartition(" cannot be reached: ")[2]
    return f"does not answer ({words[:LONGEST_PROBLEM]})"


def is_abandoned(holder: str, shares: Iterable[HostHolder]) -> bool:
    """Whether a host's holder is an attempt of one of these runs that is gone, and had no time to give it back."""
    run, _, attempt = holder.partition(":")
    mine = [share for share in shares if str(share.run_id) == run]
    return any(share.state != "running" or str(share.attempt) != attempt for share in mine)


def host_problem(known: KnownHost) -> str:
    """What follows the name of the host in a sentence, such as: does not answer (connection refused); or nothing."""
    if not (known.counts.queued or known.counts.leased) or "trouble" not in known.state:
        return ""
    try:
        return msgspec.json.decode(known.state, type=_HostProblem).trouble
    except msgspec.MsgspecError:
        return ""


def problem_state(trouble: str) -> str:
    """A state of a host of which nothing else is known, for ``told``."""
    return msgspec.json.encode(_HostProblem(trouble)).decode() if trouble else ""
