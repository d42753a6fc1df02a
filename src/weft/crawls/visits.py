"""What becomes of an address that was fetched, or could not be: its outcome, its item and the addresses it leads to."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from weft.clock import SECOND, Moment, seconds
from weft.crawl_ports import DONE, FAILED, QUEUED, SKIPPED, Given, Outcome
from weft.crawl_spec import CrawlSpec
from weft.crawls import revisits, sitemaps
from weft.crawls.carried import PLAIN, Carried, carried
from weft.crawls.ledger import Ledger
from weft.crawls.pages import Page, PageReader
from weft.crawls.politeness import retry_after
from weft.crawls.reasons import TRAPS
from weft.crawls.scope import Scope
from weft.crawls.soft404 import made_up
from weft.crawls.stats import Stats
from weft.crawls.steady import steady
from weft.crawls.traps import Traps
from weft.crawls.warc import WarcWriter
from weft.crawls.workbench import Errand, Held
from weft.fetching import conditions
from weft.fetching.exchange import Exchange, NoAnswer
from weft.fetching.urls import host_of, key_of, origin_of

REFUSALS = frozenset((429, 503))
PASSING = frozenset((408, 425, 500, 502, 504, 507, 509, *range(520, 528)))
"""Statuses that may be others in a while."""
FINAL = frozenset(("refused_address", "too_large", "url", "headers", "parser"))
"""Ways to have no answer that would be the same next time."""
NEVER_ASKED = frozenset(("refused_address", "url"))
"""Those where no request was made, so that no page of the budget is used up."""
PROBE_AFTER = 20
"""Pages of a host, after which it is worth knowing what it says for those that it does not have."""
REDIRECT_FIRST = 10
"""A priority: what a page was moved to comes before pages that nobody has asked for yet."""


@dataclass(slots=True)
class Visits:
    """Takes what came back from each visit. It raises nothing, whatever a page holds."""

    spec: CrawlSpec
    ledger: Ledger
    stats: Stats
    reader: PageReader
    scope: Scope
    traps: Traps
    warc: WarcWriter | None

    def arrived(self, held: Held, given: Given, exchange: Exchange) -> None:
        """There was an answer."""
        at, status = steady(), exchange.status
        self.stats.arrived(status, exchange.received_bytes, exchange.seconds)
        if status in REFUSALS:
            held.manners.refused(at, retry_after(exchange.header(b"retry-after"), at))
            held.saved = False
            self._settle(held, Outcome(given.key, QUEUED, "refused", status, held.manners.due(), given.tries))
        elif status in PASSING:
            held.manners.failed(at)
            held.saved = False
            self._again(held, given, f"status_{status}", status, at)
        else:
            held.manners.answered(exchange.seconds - exchange.sent_after, at)
            self._settle(held, self._read(given, exchange, at))
            held.pages += 1
            if held.pages == PROBE_AFTER:
                self._probe(held, given.url)

    def missed(self, held: Held, given: Given, problem: NoAnswer) -> None:
        """There was none."""
        at = steady()
        if problem.kind in FINAL:
            self.ledger.skip(problem.kind, given.url)
            fetched_at = 0 if problem.kind in NEVER_ASKED else at
            self._settle(held, Outcome(given.key, FAILED, problem.kind, fetched_at=fetched_at))
            return
        held.manners.failed(at)
        held.saved = False
        self.stats.problems += 1
        self._again(held, given, problem.kind, 0, at)

    def _probe(self, held: Held, url: str) -> None:
        """Ask once for a page that there cannot be, to know what the host says then."""
        traps = self.spec.traps
        wanted = traps.soft_404 and traps.near_duplicates and self.spec.follow
        if wanted and held.errand is None and not self.traps.no_such_pages.is_known(held.name):
            held.errand = Errand(origin_of(url), made_up(url), is_probe=True)

    def probed(self, url: str, exchange: Exchange | None) -> None:
        """What came back for a page that there cannot be."""
        page = self.reader.read(exchange, alike=True) if exchange is not None else None
        status = exchange.status if exchange is not None else 0
        self.traps.no_such_pages.learn(url, status, page.simhash if page is not None else 0)

    def refuse(self, held: Held, given: Given, state: str, reason: str, pattern: str = "") -> None:
        """It is not even asked for."""
        self.ledger.skip(reason, given.url, pattern, is_trap=reason in TRAPS)
        self._settle(held, Outcome(given.key, state, reason))

    def _settle(self, held: Held, outcome: Outcome) -> None:
        held.outcomes.append(outcome)
        self.ledger.settled += 1

    def _again(self, held: Held, given: Given, reason: str, status: int, at: Moment) -> None:
        """Once more, later, unless that was tried often enough."""
        fetching, tries = self.spec.fetching, given.tries + 1
        if tries > fetching.retries:
            self._settle(held, Outcome(given.key, FAILED, reason, status, tries=tries, fetched_at=at))
            return
        self.stats.retries += 1
        next_at = max(at + seconds(fetching.retry_seconds * 2**given.tries), held.manners.due())
        self._settle(held, Outcome(given.key, QUEUED, reason, status, next_at, tries))

    def _read(self, given: Given, exchange: Exchange, at: Moment) -> Outcome:
        status, carries = exchange.status, carried(given.data)
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

    def _page(self, given: Given, exchange: Exchange, carries: Carried, at: Moment) -> Outcome:
        digest = xxhash.xxh3_128_hexdigest(exchange.body)
        self._archive(exchange, digest)
        changed = digest != given.digest if given.digest else None
        if changed is False:
            return self._visited(given, exchange, carries, at, digest, changed=False, reason="unchanged")
        page = self.reader.read(exchange, alike=self.spec.follow and self.traps.looks_at(given.url))
        reason = self._trapped(page)
        if self.spec.tier == "discover" and not given.depth and not reason:
            self.ledger.feed.append(given.url)
        if not reason:
            self._follow(given, page)
            reason = self._unwanted(given, page) or self._keep(exchange, page)
        state = SKIPPED if reason else DONE
        return self._visited(given, exchange, carries, at, digest, changed=changed, reason=reason, state=state)

    def _keep(self, exchange: Exchange, page: Page) -> str:
        """Store the item; why not, where it cannot be."""
        if self.spec.tier == "discover":
            return ""
        if not self.ledger.write(page.item(exchange.began_at, with_links=self.spec.keeping.links), exchange.began_at):
            return "item_too_large"
        self.stats.items += 1
        return ""

    def _unwanted(self, given: Given, page: Page) -> str:
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
            self.ledger.skip(reason, page.url)
        return reason

    def _trapped(self, page: Page) -> str:
        """Why a page is taken for a part of a trap; empty: it is not."""
        trap = self.traps.saw(page.url, page) if page.simhash else None
        if trap is None:
            return ""
        self.ledger.skip(trap[0], page.url, trap[1], is_trap=trap[0] in TRAPS)
        return trap[0]

    def _follow(self, given: Given, page: Page) -> None:
        """The addresses that a page leads to: those that were never met, belong to the crawl and are no trap."""
        spec, ledger, depth = self.spec, self.ledger, given.depth + 1
        if not spec.follow:
            return
        left_out = (("parser", page.is_heavy), ("links_per_page", page.links_over), ("nofollow", page.links_nofollow))
        for reason, count in left_out:
            if count:
                ledger.skip(reason, page.url, count=int(count))
        if page.links_too_long:
            ledger.skip("url_length", page.url, count=page.links_too_long, is_trap=True)
        if spec.scope.nofollow and page.nofollow:
            return
        places, mask, refuses = ledger.met.places, ledger.met.mask, self._refuses
        for url in self.reader.links.take(page.leads):
            key = page.leads[url]
            place = key & mask
            if places[place] == key:
                continue
            places[place] = key
            if not refuses(url, depth):
                ledger.find(key, url, depth, given.key)
                if spec.tier == "discover":
                    ledger.feed.append(url)

    def found(self, given: Given, url: str, depth: int, carries: Carried = PLAIN, priority: int = 0) -> None:
        """An address that a page names besides its links, or a sitemap lists."""
        key, discovers = key_of(url), self.spec.tier == "discover" and not carries.sitemap
        if not self.ledger.met.meets(key) or self._refuses(url, depth):
            return
        if discovers:
            self.ledger.feed.append(url)
        if not discovers or self.spec.follow or carries.hops:
            self.ledger.find(key, url, depth, given.key, carries.text() if carries != PLAIN else "", priority)

    def seed(self, url: str, carries: Carried) -> None:
        """An address that belongs to the crawl because its spec, or a robots.txt, says so."""
        key = key_of(url)
        if self.ledger.met.meets(key):
            self.ledger.find(key, url, 0, 0, carries.text(), REDIRECT_FIRST)

    def _refuses(self, url: str, depth: int) -> bool:
        """Whether an address is left out, which is counted."""
        reason = self.scope.refuses(url, depth)
        if reason:
            self.ledger.skip(reason, url)
            return True
        trap = self.traps.refuses(url)
        if trap is not None:
            self.ledger.skip(trap[0], url, trap[1], is_trap=trap[0] in TRAPS)
        return trap is not None

    def _redirected(self, given: Given, exchange: Exchange, carries: Carried, location: bytes, at: Moment) -> Outcome:
        self._archive(exchange, "")
        targets = self.reader.spelling.resolve(exchange.url, [location.decode("utf-8", "replace").strip()])
        state, reason, is_around = DONE, "redirect", targets == [given.url]
        if is_around and given.tries < self.spec.fetching.retries:  # a site may want to see its cookie first
            return Outcome(given.key, QUEUED, reason, exchange.status, at, given.tries + 1)
        if carries.hops >= self.spec.fetching.redirects or not targets or is_around:
            state, reason = FAILED, "redirects" if targets else "redirect_nowhere"
        else:
            onward = Carried(carries.hops + 1, carries.sitemap, carries.lastmod)
            self.found(given, targets[0], given.depth, onward, REDIRECT_FIRST)
        return Outcome(given.key, state, reason, exchange.status, fetched_at=at, size=len(exchange.raw_body))

    def _sitemap(self, given: Given, exchange: Exchange, carries: Carried, at: Moment) -> Outcome:
        """Its addresses are seeds; those of another host do not count."""
        if not 200 <= exchange.status < 300:
            return Outcome(given.key, FAILED, f"status_{exchange.status}", exchange.status, fetched_at=at)
        listed, host = sitemaps.read(exchange.body), host_of(given.url)
        for entry in listed:
            url = self.reader.spelling.canonical(entry.url)
            if url is None:
                continue
            if host_of(url) != host and self.spec.scope.within != "any":
                self.ledger.skip("sitemap_host", url)
            elif not entry.is_sitemap:
                self.found(given, url, given.depth, Carried(lastmod=revisits.lastmod(entry.lastmod)))
            elif carries.sitemap < sitemaps.DEEPEST:
                self.found(given, url, given.depth, Carried(sitemap=carries.sitemap + 1), REDIRECT_FIRST)
        return self._visited(given, exchange, carries, at, "", changed=None, reason="sitemap")

    def _visited(
        self,
        given: Given,
        exchange: Exchange,
        carries: Carried,
        at: Moment,
        digest: str,
        *,
        changed: bool | None,
        reason: str = "",
        state: str = DONE,
    ) -> Outcome:
        """The outcome of a visit that went well, and when the next one is."""
        policy, interval, next_at = self.spec.revisit, 0.0, 0
        if policy.policy != "none":
            age = (at - (carries.lastmod or revisits.http_date(exchange.header(b"last-modified")))) / SECOND
            interval = revisits.next_interval(policy, given.interval, changed, age)
            state, next_at = QUEUED, revisits.next_visit(at, interval)
        validators = conditions.validators(exchange) if changed is not False else (given.etag, given.last_modified)
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
