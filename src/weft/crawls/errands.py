"""Fetches robots.txt before anything else of its origin, and says what may be fetched next of a host."""

from __future__ import annotations

from collections.abc import Callable

from weft.clock import SECOND, Moment, seconds
from weft.crawl_ports import FAILED, SKIPPED, Given
from weft.crawl_spec import CrawlSpec
from weft.crawls import robots
from weft.crawls.allowance import Allowance, Allowances
from weft.crawls.politeness import retry_after
from weft.crawls.robots import KeptRobots
from weft.crawls.steady import steady
from weft.crawls.workbench import Errand, Held
from weft.fetching.detours import LONGEST_PAUSE_SECONDS, PutOff
from weft.fetching.exchange import Exchange, NoAnswer
from weft.fetching.urls import canonical, host_of, origin_of, resolve

Refuse = Callable[[Held, Given, str, str, str], None]
"""Of a host, an address: in which state it ends, why, and what it has in common with others."""
TrapOf = Callable[[str], tuple[str, str] | None]
"""Why an address that was let in before is a part of a trap, and the pattern of that."""
Listed = Callable[[Held, str], None]
"""A sitemap that the robots.txt of a host names."""
MOST_ORIGINS = 4
"""Of a host; a robots.txt for each is kept in its state."""
GIVEN_UP: Moment = 3_600 * SECOND
"""How long a robots.txt counts as out of reach after the last try."""


class Errands:
    """Robots of all hosts that are held."""

    def __init__(self, spec: CrawlSpec, token: str, refuse: Refuse, listed: Listed, trap_of: TrapOf) -> None:
        self._obeys = spec.politeness.robots
        self._tries = spec.fetching.retries
        self._allowances = Allowances(spec.politeness, token)
        self._refuse, self._listed, self._trap_of = refuse, listed, trap_of

    def admit(self, held: Held, at: Moment) -> Given | Errand | None:
        """What is to be fetched next of a host, after what may not be fetched is put aside; None: nothing."""
        queue = held.queue
        if held.errand is not None:
            errand, held.errand = held.errand, None
            if not errand.is_probe or self._may_probe(held, errand):
                return errand
        while queue:
            url, allowance = queue[0].url, None
            if self._obeys and not held.manners.is_down(at):
                origin = origin_of(url)
                allowance = held.allowances.get(origin)
                if allowance is None or not allowance.counts(at):
                    allowance = self._look(held, origin, at)
                    if allowance is None:
                        return Errand(origin, f"{origin}/robots.txt")
            given, refusal = queue.popleft(), self._refusal(held, url, allowance, at)
            if refusal is None:
                return given
            self._refuse(held, given, *refusal)
        return None

    def _refusal(self, held: Held, url: str, allowance: Allowance | None, at: Moment) -> tuple[str, str, str] | None:
        """The state, the reason and the pattern of an address that is not asked for; None: it is."""
        if allowance is not None:
            if allowance.out_of_reach:
                return FAILED, allowance.why or "robots_unreachable", ""
            if held.manners.asks_too_much:
                return SKIPPED, "crawl_delay", ""
            rules = allowance.rules
            if rules is not None and not rules.allows(url):
                return SKIPPED, "robots", ""
        elif held.manners.is_down(at):
            return FAILED, "parked", ""
        trap = self._trap_of(url)
        return (SKIPPED, *trap) if trap is not None else None

    def _may_probe(self, held: Held, errand: Errand) -> bool:
        """As robots.txt says; where that is not known any more there is no probe."""
        if not self._obeys:
            return True
        allowance = held.allowances.get(errand.origin)
        if allowance is None or not allowance.counts(steady()):
            return False
        rules = allowance.rules
        return rules is None or rules.allows(errand.url)

    def _look(self, held: Held, origin: str, at: Moment) -> Allowance | None:
        """What is known of an origin from before; None: nothing that still counts."""
        allowance = self._allowances.of(origin, held.manners.state.robots.get(origin), at)
        if allowance is not None:
            held.allowances[origin] = allowance
            rules = allowance.rules
            if rules is not None:
                held.saved = held.saved and rules.crawl_delay <= held.manners.crawl_delay
                held.manners.obey(rules.crawl_delay)
                for sitemap in rules.sitemaps:
                    self._listed(held, sitemap)
        return allowance

    def arrived(self, held: Held, errand: Errand, exchange: Exchange) -> None:
        """robots.txt was answered."""
        at = steady()
        if 300 <= exchange.status < 400 and (location := exchange.header(b"location")):
            self._redirected(held, errand, exchange.url, location.decode("utf-8", "replace"), at)
            return
        found, text = robots.answered(exchange)
        if found == robots.UNREACHABLE:
            self._out_of_reach(held, errand.origin, at, retry_after(exchange.header(b"retry-after"), at))
            return
        if host_of(exchange.url) == held.name:
            held.manners.answered(exchange.seconds - exchange.sent_after, at)
        self._keep(held, errand.origin, found, text, at)

    def missed(self, held: Held, errand: Errand, problem: NoAnswer) -> None:
        """There is no answer. An address that may never be asked is like one where no robots.txt is."""
        if isinstance(problem, PutOff):  # nothing was asked: it says nothing about robots.txt
            held.manners.block(steady() + seconds(min(max(problem.seconds, 1.0), LONGEST_PAUSE_SECONDS)))
            held.saved, held.errand = False, errand if errand.hops else None
        elif problem.kind == "refused_address" and errand.hops == 0:
            self._keep(held, errand.origin, robots.NONE, "", steady())
        else:
            why = problem.kind if problem.kind in robots.OF_THE_HOST and errand.hops == 0 else ""
            self._out_of_reach(held, errand.origin, steady(), None, why)

    def _redirected(self, held: Held, errand: Errand, url: str, location: str, at: Moment) -> None:
        """Follow, as far as RFC 9309 asks for; who redirects further has no robots.txt."""
        targets = resolve(url, [location.strip()])
        if errand.hops >= robots.MOST_REDIRECTS or not targets or canonical(targets[0]) is None:
            self._keep(held, errand.origin, robots.NONE, "", at)
        else:
            held.errand = Errand(errand.origin, targets[0], errand.hops + 1)

    def _keep(self, held: Held, origin: str, found: str, text: str, at: Moment) -> None:
        large = len(text) > robots.LARGEST_KEPT
        self._remember(held, origin, KeptRobots(at, found, "" if large else text, large), text)

    def _out_of_reach(self, held: Held, origin: str, at: Moment, wait: float | None, why: str = "") -> None:
        """Nothing of the host is fetched until it is tried again; after enough tries what is wanted of it fails."""
        before = held.manners.state.robots.get(origin)
        tries = 1 + (before.tries if before is not None and before.found == robots.UNREACHABLE else 0)
        pause = robots.again_in(tries) if wait is None else round(wait * SECOND) + SECOND // 20
        if tries > self._tries:
            pause = max(pause, GIVEN_UP)
        else:
            held.manners.block(at + pause)
        kept = KeptRobots(at, robots.UNREACHABLE, tries=tries, again_at=at + pause, why=why)
        self._remember(held, origin, kept, "")

    def _remember(self, held: Held, origin: str, kept: KeptRobots, text: str) -> None:
        known = held.manners.state.robots
        while len(known) >= MOST_ORIGINS and origin not in known:
            del known[next(iter(known))]
        known[origin] = kept
        self._allowances.learn(origin, kept, text)
        held.allowances.pop(origin, None)
        others = (each.rules for each in held.allowances.values())
        held.manners.obey_only(max((rules.crawl_delay for rules in others if rules is not None), default=0.0))
        held.saved = False
