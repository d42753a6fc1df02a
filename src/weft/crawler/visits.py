"""Records what became of a URL that was fetched or could not be: its outcome, item, links and next visit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import xxhash
from msgspec.structs import replace

from weft.clock import SECOND, Moment, moment, seconds
from weft.crawl_spec import CrawlSpec, RevisitSpec
from weft.crawler import sitemaps
from weft.crawler.host_scheduler import AuxiliaryRequest, HeldHost
from weft.crawler.messages import NO_METADATA, UrlMetadata, url_metadata
from weft.crawler.pages import PageReader, ParsedPage
from weft.crawler.politeness import retry_after
from weft.crawler.reasons import SUSPECTED, TRAPS
from weft.crawler.reporter import PendingReport, SeenUrls
from weft.crawler.scope import ScopeFilter
from weft.crawler.similarity import missing_url
from weft.crawler.stats import CrawlStats
from weft.crawler.steady_clock import steady_now
from weft.crawler.traps import TrapDetector, TrapReason
from weft.crawler.warc import WarcWriter
from weft.fetching.model import Exchange, FetchError, cache_validators
from weft.fetching.urls import host_of, key_of, origin_of
from weft.ports import DONE, FAILED, QUEUED, REQUEUED, SKIPPED, Found, Given, Outcome

CHANGED, UNCHANGED = 0.8, 1.4
"""What the interval is multiplied by where a page has changed, or not."""
OLDEST_SECONDS = 50 * 365 * 86_400.0
"""A page that calls itself older than the web tells nothing."""


AGE_SHARE = 0.2
"""By ``lastmod`` a page that has not changed for five days is looked at in a day."""


def next_interval(policy: RevisitSpec, last: float, changed: bool | None, age: float = 0.0) -> float:
    """Seconds until the next visit; 0: there is none. ``changed`` is None on the first visit, ``age`` is how long ago
    the page last changed, as its site says."""
    if policy.policy == "none":
        return 0.0
    if policy.policy == "lastmod" and 0 < age < OLDEST_SECONDS:
        wanted = age * AGE_SHARE
    elif policy.policy != "adaptive" or changed is None or not last:
        wanted = policy.seconds
    else:
        wanted = last * (CHANGED if changed else UNCHANGED)
    return min(max(wanted, policy.least_seconds, 1.0), max(policy.most_seconds, 1.0))


def next_visit(at: Moment, interval: float) -> Moment:
    return at + seconds(interval) if interval else 0


def lastmod(text: str) -> Moment:
    """The moment that a sitemap names, in W3C's form; 0 where it is none."""
    try:
        named = datetime.fromisoformat(text.strip())
    except ValueError:
        return 0
    return max(0, moment(named.replace(tzinfo=named.tzinfo or UTC)))


def http_date(value: bytes) -> Moment:
    """The moment that a header such as Last-Modified names; 0 where it is none."""
    try:
        return moment(parsedate_to_datetime(value.decode("latin-1"))) if value else 0
    except (ValueError, TypeError, OverflowError):
        return 0


BACK_OFF_STATUSES = frozenset((429, 503))
TRANSIENT_STATUSES = frozenset((408, 425, 500, 502, 504, 507, 509, *range(520, 528)))
"""Statuses that may be others in a while."""
PERMANENT_ERRORS = frozenset(("refused_address", "too_large", "url", "headers", "parser"))
"""Ways to have no answer that would be the same next time."""
NEVER_ASKED = frozenset(("refused_address", "url"))
"""Those where no request was made, so that no page of the budget is used up."""
PROBE_AFTER = 20
"""Pages of a host, after which it is worth knowing what it says for those that it does not have."""
REDIRECT_FIRST = 10
"""A priority: what a page was moved to comes before pages that nobody has asked for yet."""
LOWEST_PRIORITY = -1_000
"""The priority of what is suspected: it is only put aside, and that hurries least."""
MOST_SUSPECTS = 100_000
"""Of one process; what is suspected besides is counted and not kept."""
DROPPED_SLOTS = 1 << 16
"""Half a megabyte of them."""
MOST_DROPPED_CHECKED = 20_000
"""Of so many dropped links of a page it is known whether they belong to the crawl; the rest is taken to."""


@dataclass(slots=True)
class Visits:
    """Takes what came back from each visit. It raises nothing, whatever a page holds."""

    spec: CrawlSpec
    pending: PendingReport
    stats: CrawlStats
    reader: PageReader
    scope: ScopeFilter
    traps: TrapDetector
    warc: WarcWriter | None
    _suspects: int = 0
    _dropped: SeenUrls = field(default_factory=lambda: SeenUrls(DROPPED_SLOTS))
    """Links that a limit drops and that were counted."""

    def arrived(self, held: HeldHost, given: Given, exchange: Exchange) -> None:
        """There was an answer."""
        at, status = steady_now(), exchange.status
        self.stats.arrived(status, exchange.received_bytes, exchange.seconds)
        if status in BACK_OFF_STATUSES:
            held.politeness.refused(at, retry_after(exchange.header(b"retry-after"), at))
            held.saved = False
            self._settle(
                held, Outcome(given.key, QUEUED, _said("refused", given), status, held.politeness.due(), given.tries)
            )
        elif status in TRANSIENT_STATUSES:
            held.politeness.failed(at)
            held.saved = False
            self._again(held, given, f"status_{status}", status, at)
        else:
            held.politeness.answered(exchange.seconds - exchange.sent_after, at)
            self._settle(held, self._read(given, exchange, at))
            held.pages += 1
            if held.auxiliary is None:
                self._probe(held, given.url)

    def missed(self, held: HeldHost, given: Given, problem: FetchError) -> None:
        """There was none."""
        at = steady_now()
        if problem.kind in PERMANENT_ERRORS:
            self.pending.skip(problem.kind, given.url)
            fetched_at = 0 if problem.kind in NEVER_ASKED else at
            self._settle(held, Outcome(given.key, FAILED, problem.kind, fetched_at=fetched_at))
            return
        held.politeness.failed(at)
        held.saved = False
        self.stats.problems += 1
        self._again(held, given, problem.kind, 0, at)

    def _probe(self, held: HeldHost, url: str) -> None:
        """Ask for a page that there cannot be: once of a host, to know what it says then, and of suspected patterns."""
        traps = self.spec.traps
        if not (traps.near_duplicates and self.spec.follow) or traps.level == "off":
            return
        if held.pages == PROBE_AFTER and traps.soft_404 and not self.traps.soft_404_pages.is_known(held.name):
            held.auxiliary = AuxiliaryRequest(origin_of(url), missing_url(url), is_probe=True)
        elif (wanted := self.traps.probe(held.name)) is not None:
            held.auxiliary = AuxiliaryRequest(
                origin_of(url), f"{origin_of(url)}/{wanted[1]}", is_probe=True, about=wanted[0]
            )

    def probed(self, auxiliary: AuxiliaryRequest, exchange: Exchange | None) -> None:
        """What came back for a page that there cannot be."""
        if auxiliary.about and exchange is not None:
            path = auxiliary.url.split("/", 3)[3]
            exchange.body = self.traps.without_own_url(auxiliary.about, path, exchange.body)
        page = self.reader.read(exchange, alike=True) if exchange is not None else None
        status = exchange.status if exchange is not None else 0
        simhash, title = (page.simhash, page.title) if page is not None else (0, "")
        if auxiliary.about:
            self.traps.probed(auxiliary.about, status, simhash)
        else:
            self.traps.soft_404_pages.learn(auxiliary.url, status, simhash, title)

    def trap_of(self, given: Given) -> TrapReason | None:
        """Why an address that was let in is not fetched after all; what somebody has put back in line is."""
        return None if given.reason == REQUEUED else self.traps.trap_of(given.url)

    def refuse(self, held: HeldHost, given: Given, state: str, reason: str, pattern: str = "") -> None:
        """It is not even asked for."""
        self.pending.skip(reason, given.url, pattern, is_trap=reason in TRAPS)
        self._settle(held, Outcome(given.key, state, reason))

    def _settle(self, held: HeldHost, outcome: Outcome) -> None:
        held.outcomes.append(outcome)
        self.pending.settled += 1

    def _again(self, held: HeldHost, given: Given, reason: str, status: int, at: Moment) -> None:
        """Once more, later, unless that was tried often enough."""
        fetching, tries = self.spec.fetching, given.tries + 1
        if tries > fetching.retries:
            self._settle(held, Outcome(given.key, FAILED, reason, status, tries=tries, fetched_at=at))
            return
        self.stats.retries += 1
        next_at = max(at + seconds(fetching.retry_seconds * 2**given.tries), held.politeness.due())
        self._settle(held, Outcome(given.key, QUEUED, _said(reason, given), status, next_at, tries))

    def _read(self, given: Given, exchange: Exchange, at: Moment) -> Outcome:
        status, carries = exchange.status, url_metadata(given.data)
        if 300 <= status < 400 and status != 304 and (location := exchange.header(b"location")):
            return self._redirected(given, exchange, carries, location, at)
        if status == 304:
            self._archive(exchange, "")
            return self._visited(given, exchange, carries, at, given.digest, changed=False, reason="unchanged")
        if carries.sitemap:
            return self._sitemap(given, exchange, carries, at)
        if not 200 <= status < 300:
            self._archive(exchange, "")
            return Outcome(given.key, FAILED, f"status_{status}", status, fetched_at=at, size=len(exchange.raw_body))
        return self._page(given, exchange, carries, at)

    def _page(self, given: Given, exchange: Exchange, carries: UrlMetadata, at: Moment) -> Outcome:
        digest = xxhash.xxh3_128_hexdigest(exchange.body)
        self._archive(exchange, digest)
        changed = digest != given.digest if given.digest else None
        if changed is False:
            return self._visited(given, exchange, carries, at, digest, changed=False, reason="unchanged")
        page = self.reader.read(exchange, alike=self.spec.follow and self.traps.looks_at(given.url))
        reason = self._trapped(given, page)
        is_first = not given.depth or given.reason == REQUEUED
        if self.spec.tier == "discover" and is_first and not reason:
            self.pending.feed.append(given.url)
        if not reason:
            self._follow(given, page)
            reason = self._unwanted(given, page) or self._keep(exchange, page)
        state = SKIPPED if reason else DONE
        return self._visited(given, exchange, carries, at, digest, changed=changed, reason=reason, state=state)

    def _keep(self, exchange: Exchange, page: ParsedPage) -> str:
        """Store the item; why not, where it cannot be."""
        if self.spec.tier == "discover":
            return ""
        if not self.pending.write(page.item(exchange.began_at, with_links=self.spec.keeping.links), exchange.began_at):
            return "item_too_large"
        self.stats.items += 1
        return ""

    def _unwanted(self, given: Given, page: ParsedPage) -> str:
        """Why a page that was fetched is not kept; empty: it is."""
        scope, reason = self.spec.scope, ""
        if scope.noindex and page.noindex:
            reason = "noindex"
        elif scope.canonical and page.canonical_url and page.canonical_url != page.url:
            reason = "canonical"
            self.found(given, page.canonical_url, given.depth)
        elif page.missing:
            reason = "fields_missing"
        if reason:
            self.pending.skip(reason, page.url)
        return reason

    def _trapped(self, given: Given, page: ParsedPage) -> str:
        """Why a page is taken for a part of a trap; empty: it is not, or somebody wants it all the same."""
        trap = self.traps.saw(page.url, page) if page.simhash else None
        if trap is None or given.reason == REQUEUED:
            return ""
        self.pending.skip(trap[0], page.url, trap[1], is_trap=trap[0] in TRAPS)
        return trap[0]

    def _follow(self, given: Given, page: ParsedPage) -> None:
        """The addresses that a page leads to: those that were never met, belong to the crawl and are no trap."""
        spec, pending, depth = self.spec, self.pending, given.depth + 1
        if not spec.follow:
            return
        for reason, count in (("parser", page.is_heavy), ("nofollow", page.links_nofollow)):
            if count:
                pending.skip(reason, page.url, count=int(count))
        if spec.scope.nofollow and page.nofollow:
            return
        if page.links_unread:
            pending.skip("links_per_page", page.url, count=page.links_unread)
        self._drop("links_per_page", page.leads_over, page.url, depth)
        self._drop("link_length", page.leads_too_long, page.url, depth)
        places, mask, out_of_scope, suspects = (
            pending.met.places,
            pending.met.mask,
            self.scope.refuses,
            self.traps.refuses,
        )
        was_suspected = given.reason == REQUEUED
        for url in self.reader.links.take(page.leads):
            key = page.leads[url]
            place = key & mask
            if places[place] == key:
                continue
            places[place] = key
            if out := out_of_scope(url, depth):
                pending.skip(out, url)
            elif (trap := suspects(url, page.url, was_suspected=was_suspected)) is not None:
                self._suspect(Found(key, url, host_of(url), depth, LOWEST_PRIORITY, given.key), trap, NO_METADATA)
            else:
                pending.find(key, url, depth, given.key)
                if spec.tier == "discover":
                    pending.feed.append(url)

    def _drop(self, reason: str, leads: dict[str, int], found_on: str, depth: int) -> None:
        """Count links that a limit drops, each once: those that would belong to the crawl, and that nobody has met.
        Patterns take their time, so not all links of an endless page are held against the scope."""
        met, looked_at, dropped = self.pending.met, 0, 0
        for url, key in leads.items():
            if met.knows(key) or not self._dropped.meets(key):
                continue
            looked_at += 1
            if looked_at <= MOST_DROPPED_CHECKED and (out := self.scope.refuses(url, depth)):
                self.pending.skip(out, url)
            else:
                dropped += 1
        if dropped:
            self.pending.skip(reason, found_on, count=dropped)

    def found(self, given: Given, url: str, depth: int, carries: UrlMetadata = NO_METADATA, priority: int = 0) -> None:
        """An address that a page names besides its links, or a sitemap lists."""
        key, discovers = key_of(url), self.spec.tier == "discover" and not carries.sitemap
        if not self.pending.met.meets(key):
            return
        if out := self.scope.refuses(url, depth):
            self.pending.skip(out, url)
            return
        if (trap := self.traps.refuses(url)) is not None:
            self._suspect(Found(key, url, host_of(url), depth, LOWEST_PRIORITY, given.key), trap, carries)
            return
        if discovers:
            self.pending.feed.append(url)
        if not discovers or self.spec.follow or carries.hops:
            self.pending.find(key, url, depth, given.key, carries.text() if carries != NO_METADATA else "", priority)

    def seed(self, url: str, carries: UrlMetadata) -> None:
        """An address that belongs to the crawl because its spec, or a robots.txt, says so."""
        key = key_of(url)
        if self.pending.met.meets(key):
            self.pending.find(key, url, 0, 0, carries.text(), REDIRECT_FIRST)

    def _suspect(self, found: Found, trap: TrapReason, carries: UrlMetadata) -> None:
        """Let the frontier know an address that is suspected: it counts once, and can be put back in line."""
        reason, pattern = trap
        if self._suspects >= MOST_SUSPECTS:
            self.pending.skip("suspects", found.url, pattern, is_trap=True)
            return
        self._suspects += 1
        data = replace(carries, suspect=reason, pattern=pattern).text()
        self.pending.find(found.key, found.url, found.depth, found.found_on, data, found.priority)

    def _redirected(
        self, given: Given, exchange: Exchange, carries: UrlMetadata, location: bytes, at: Moment
    ) -> Outcome:
        self._archive(exchange, "")
        targets = self.reader.spelling.resolve(exchange.url, [location.decode("utf-8", "replace").strip()])
        state, reason, is_around = DONE, "redirect", targets == [given.url]
        if is_around and given.tries < self.spec.fetching.retries:  # a site may want to see its cookie first
            return Outcome(given.key, QUEUED, reason, exchange.status, at, given.tries + 1)
        if carries.hops >= self.spec.fetching.redirects or not targets or is_around:
            state, reason = FAILED, "redirects" if targets else "redirect_nowhere"
        else:
            onward = UrlMetadata(carries.hops + 1, carries.sitemap, carries.lastmod)
            self.found(given, targets[0], given.depth, onward, REDIRECT_FIRST)
        return Outcome(given.key, state, reason, exchange.status, fetched_at=at, size=len(exchange.raw_body))

    def _sitemap(self, given: Given, exchange: Exchange, carries: UrlMetadata, at: Moment) -> Outcome:
        """Its addresses are seeds; those of another host do not count."""
        if not 200 <= exchange.status < 300:
            return Outcome(given.key, FAILED, f"status_{exchange.status}", exchange.status, fetched_at=at)
        listed, host = sitemaps.read(exchange.body), host_of(given.url)
        if listed.over:
            self.pending.skip("sitemap_limit", given.url, count=listed.over)
        for entry in listed.entries:
            url = self.reader.spelling.canonical(entry.url)
            if url is None:
                continue
            if host_of(url) != host and self.spec.scope.within != "any":
                self.pending.skip("sitemap_host", url)
            elif not entry.is_sitemap:
                self.found(given, url, given.depth, UrlMetadata(lastmod=lastmod(entry.lastmod)))
            elif carries.sitemap < sitemaps.DEEPEST:
                self.found(given, url, given.depth, UrlMetadata(sitemap=carries.sitemap + 1), REDIRECT_FIRST)
            else:
                self.pending.skip("sitemap_limit", url)
        return self._visited(given, exchange, carries, at, "", changed=None, reason="sitemap")

    def _visited(
        self,
        given: Given,
        exchange: Exchange,
        carries: UrlMetadata,
        at: Moment,
        digest: str,
        *,
        changed: bool | None,
        reason: str = "",
        state: str = DONE,
    ) -> Outcome:
        """The outcome of a visit that went well, and when the next one is."""
        policy, interval, next_at = self.spec.revisit, 0.0, 0
        if policy.policy != "none" and not (state == SKIPPED and reason in SUSPECTED):
            age = (at - (carries.lastmod or http_date(exchange.header(b"last-modified")))) / SECOND
            interval = next_interval(policy, given.interval, changed, age)
            state, next_at = QUEUED, next_visit(at, interval)
        validators = cache_validators(exchange) if changed is not False else (given.etag, given.last_modified)
        if state == SKIPPED:  # whoever puts it back in line wants all of it
            validators, digest = ("", ""), ""
        return Outcome(
            given.key,
            state,
            reason,
            exchange.status,
            next_at,
            0,
            at,
            *validators,
            digest,
            interval,
            len(exchange.raw_body),
        )

    def _archive(self, exchange: Exchange, digest: str) -> None:
        if self.warc is not None:
            self.warc.write(exchange, digest)


def _said(reason: str, given: Given) -> str:
    """The reason of an address that is queued once more: one that somebody has put back in line stays that."""
    return REQUEUED if given.reason == REQUEUED else reason
