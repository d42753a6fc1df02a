"""Fetches robots.txt before anything else of its origin, also from other hosts, and says what may be fetched next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from weft.clock import SECOND, Moment, seconds
from weft.crawl_spec import CrawlSpec
from weft.crawler import robots
from weft.crawler.host_scheduler import AuxiliaryRequest, HeldHost, HostScheduler
from weft.crawler.messages import CrawlerRequest, PermitRequest, suspicion
from weft.crawler.politeness import FIRST_REST_SECONDS, retry_after
from weft.crawler.robots import RobotsPolicies, RobotsPolicy, StoredRobots
from weft.crawler.steady_clock import steady_now
from weft.crawler.visits import BACK_OFF_STATUSES
from weft.crawler.worker_channel import SideChannel
from weft.fetching.model import Exchange, FetchError, FetchRequest
from weft.fetching.throttle import LATE_SECONDS
from weft.fetching.urls import canonical, host_of, origin_of, resolve
from weft.ports import FAILED, SKIPPED, Given, Grant
from weft.proxies.client import LONGEST_PAUSE_SECONDS, FetchPostponed

Refuse = Callable[[HeldHost, Given, str, str, str], None]
"""Of a host, an address: in which state it ends, why, and what it has in common with others."""
TrapOf = Callable[[Given], tuple[str, str] | None]
"""Why an address that was let in before is a part of a trap, and the pattern of that."""
Listed = Callable[[HeldHost, str], None]
"""A sitemap that the robots.txt of a host names."""
MOST_ORIGINS = 4
"""Of a host; a robots.txt for each is kept in its state."""
GIVEN_UP: Moment = 3_600 * SECOND
"""How long a robots.txt counts as out of reach after the last try."""


class RobotsFetcher:
    """Robots of all hosts that are held."""

    def __init__(self, spec: CrawlSpec, token: str, refuse: Refuse, listed: Listed, trap_of: TrapOf) -> None:
        self._obeys = spec.politeness.robots
        self._tries = spec.fetching.retries
        self._robots_policies = RobotsPolicies(spec.politeness, token)
        self._refuse, self._listed, self._trap_of = refuse, listed, trap_of

    def admit(self, held: HeldHost, at: Moment) -> Given | AuxiliaryRequest | None:
        """What is to be fetched next of a host, after what may not be fetched is put aside; None: nothing."""
        queue = held.queue
        if held.auxiliary is not None:
            auxiliary, held.auxiliary = held.auxiliary, None
            if not auxiliary.is_probe or self._may_probe(held, auxiliary):
                return auxiliary
        while queue:
            url, robots_policy = queue[0].url, None
            if (suspected := suspicion(queue[0])) is not None:
                self._refuse(held, queue.popleft(), SKIPPED, *suspected)
                continue
            if self._obeys and not held.politeness.is_down(at):
                origin = origin_of(url)
                robots_policy = held.robots_policies.get(origin)
                if robots_policy is None or not robots_policy.counts(at):
                    robots_policy = self._look(held, origin, at)
                    if robots_policy is None:
                        return AuxiliaryRequest(origin, f"{origin}/robots.txt")
            given = queue.popleft()
            refusal = self._refusal(held, given, robots_policy, at)
            if refusal is None:
                return given
            self._refuse(held, given, *refusal)
        return None

    def _refusal(
        self, held: HeldHost, given: Given, robots_policy: RobotsPolicy | None, at: Moment
    ) -> tuple[str, str, str] | None:
        """The state, the reason and the pattern of an address that is not asked for; None: it is."""
        if robots_policy is not None:
            if robots_policy.out_of_reach:
                return FAILED, robots_policy.why or "robots_unreachable", ""
            if held.politeness.asks_too_much:
                return SKIPPED, "crawl_delay", ""
            rules = robots_policy.rules
            if rules is not None and not rules.allows(given.url):
                return SKIPPED, "robots", ""
        elif held.politeness.is_down(at):
            return FAILED, "parked", ""
        trap = self._trap_of(given)
        return (SKIPPED, *trap) if trap is not None else None

    def _may_probe(self, held: HeldHost, auxiliary: AuxiliaryRequest) -> bool:
        """As robots.txt says; where that is not known any more there is no probe."""
        if not self._obeys:
            return True
        robots_policy = held.robots_policies.get(auxiliary.origin)
        if robots_policy is None or not robots_policy.counts(steady_now()):
            return False
        rules = robots_policy.rules
        return rules is None or rules.allows(auxiliary.url)

    def _look(self, held: HeldHost, origin: str, at: Moment) -> RobotsPolicy | None:
        """What is known of an origin from before; None: nothing that still counts."""
        robots_policy = self._robots_policies.of(origin, held.politeness.state.robots.get(origin), at)
        if robots_policy is not None:
            held.robots_policies[origin] = robots_policy
            rules = robots_policy.rules
            if rules is not None:
                held.saved = held.saved and rules.crawl_delay <= held.politeness.crawl_delay
                held.politeness.obey(rules.crawl_delay)
                for sitemap in rules.sitemaps:
                    self._listed(held, sitemap)
        return robots_policy

    def arrived(self, held: HeldHost, auxiliary: AuxiliaryRequest, exchange: Exchange) -> None:
        """robots.txt was answered."""
        at = steady_now()
        if 300 <= exchange.status < 400 and (location := exchange.header(b"location")):
            self._redirected(held, auxiliary, exchange.url, location.decode("utf-8", "replace"), at)
            return
        found, text = robots.robots_of(exchange)
        if found == robots.UNREACHABLE:
            wait = retry_after(exchange.header(b"retry-after"), at)
            if wait is not None and exchange.status in BACK_OFF_STATUSES and host_of(exchange.url) == held.name:
                held.politeness.told(at + seconds(wait))
            self._out_of_reach(held, auxiliary.origin, at, wait)
            return
        if host_of(exchange.url) == held.name:
            held.politeness.answered(exchange.seconds - exchange.sent_after, at)
        self._keep(held, auxiliary.origin, found, text, at)

    def missed(self, held: HeldHost, auxiliary: AuxiliaryRequest, problem: FetchError) -> None:
        """There is no answer. An address that may never be asked is like one where no robots.txt is."""
        if isinstance(problem, FetchPostponed):  # nothing was asked: it says nothing about robots.txt
            held.politeness.block(steady_now() + seconds(min(max(problem.seconds, 1.0), LONGEST_PAUSE_SECONDS)))
            held.saved, held.auxiliary = False, auxiliary if auxiliary.hops else None
        elif problem.kind == "refused_address" and auxiliary.hops == 0:
            self._keep(held, auxiliary.origin, robots.NONE, "", steady_now())
        else:
            why = problem.kind if problem.kind in robots.HOST_ERRORS and auxiliary.hops == 0 else ""
            self._out_of_reach(held, auxiliary.origin, steady_now(), None, why)

    def _redirected(self, held: HeldHost, auxiliary: AuxiliaryRequest, url: str, location: str, at: Moment) -> None:
        """Follow, as far as RFC 9309 asks for; who redirects further has no robots.txt."""
        targets = resolve(url, [location.strip()])
        if auxiliary.hops >= robots.MOST_REDIRECTS or not targets or canonical(targets[0]) is None:
            self._keep(held, auxiliary.origin, robots.NONE, "", at)
        else:
            held.auxiliary = AuxiliaryRequest(auxiliary.origin, targets[0], auxiliary.hops + 1)

    def _keep(self, held: HeldHost, origin: str, found: str, text: str, at: Moment) -> None:
        large = len(text) > robots.LARGEST_KEPT
        self._remember(held, origin, StoredRobots(at, found, "" if large else text, large), text)

    def _out_of_reach(self, held: HeldHost, origin: str, at: Moment, wait: float | None, why: str = "") -> None:
        """Nothing of the host is fetched until it is tried again; after enough tries what is wanted of it fails."""
        before = held.politeness.state.robots.get(origin)
        tries = 1 + (before.tries if before is not None and before.found == robots.UNREACHABLE else 0)
        pause = robots.retry_in(tries) if wait is None else round(wait * SECOND) + SECOND // 20
        if tries > self._tries:
            pause = max(pause, GIVEN_UP)
        else:
            held.politeness.block(at + pause)
        kept = StoredRobots(at, robots.UNREACHABLE, tries=tries, again_at=at + pause, why=why)
        self._remember(held, origin, kept, "")

    def _remember(self, held: HeldHost, origin: str, kept: StoredRobots, text: str) -> None:
        known = held.politeness.state.robots
        while len(known) >= MOST_ORIGINS and origin not in known:
            del known[next(iter(known))]
        known[origin] = kept
        self._robots_policies.learn(origin, kept, text)
        held.robots_policies.pop(origin, None)
        others = (each.rules for each in held.robots_policies.values())
        held.politeness.obey_only(max((rules.crawl_delay for rules in others if rules is not None), default=0.0))
        held.saved = False


ROBOTS_BACK_OFF_STATUSES = frozenset((429, 503))
LONGEST_WAIT: Moment = 5 * SECOND
"""A turn of a host that is held; who would wait longer comes again."""
LONGEST_PERMIT_SECONDS = 1.3
"""A place further away is not taken: the limiter may forget it before it is used."""
LONGEST_PENALTY_SECONDS = 86_400.0
LOOK_SECONDS = 0.02
NOT_NOW = "its robots.txt is on another host, whose turn it is not"


class Fetcher(Protocol):
    """How requests leave this process."""

    async def fetch(self, ask: FetchRequest) -> Exchange: ...


class CrossHostFetcher:
    """Fetches for one host from another. Raises ``FetchError``; ``FetchPostponed`` where that may not be asked soon."""

    def __init__(self, scheduler: HostScheduler, fetcher: Fetcher, channel: SideChannel) -> None:
        self._scheduler, self._fetcher, self._channel = scheduler, fetcher, channel

    async def fetch(self, guest: HeldHost, ask: FetchRequest) -> Exchange:
        """``guest`` is held, and is asked for nothing meanwhile."""
        name = host_of(ask.url)
        host = self._scheduler.hosts.get(name)
        guest.busy -= 1
        try:
            return await (self._by_permit(name, ask) if host is None else self._as_its_own(host, ask))
        finally:
            guest.busy += 1

    async def _as_its_own(self, host: HeldHost, ask: FetchRequest) -> Exchange:
        await self._come(host)
        try:
            if host.gone or host.until <= steady_now():
                raise FetchPostponed("in_line", NOT_NOW, 1.0)
            exchange = await self._fetcher.fetch(ask)
        except FetchError:
            host.politeness.wait_one_delay(steady_now())
            raise
        finally:
            self._scheduler.leave(host)
        at = steady_now()
        host.politeness.was_sent(round(exchange.sent_after * SECOND))
        host.politeness.state.address = exchange.address
        if exchange.status in ROBOTS_BACK_OFF_STATUSES:
            host.politeness.refused(at, retry_after(exchange.header(b"retry-after"), at))
        host.saved = False
        return exchange

    async def _come(self, host: HeldHost) -> None:
        """Wait for the next turn of a host, in which nothing else of it is under way."""
        due = self._scheduler.reserve(host, LONGEST_WAIT)
        try:
            while (wait := due - steady_now()) > 0 or not self._scheduler.enter(host):  # noqa: ASYNC110 - a rare one
                await asyncio.sleep(max(wait / SECOND, LOOK_SECONDS))
        except asyncio.CancelledError:
            host.foreign_requests -= 1
            raise

    async def _by_permit(self, name: str, ask: FetchRequest) -> Exchange:
        key, asked_at = f"host:{name}", time.monotonic()
        grant = await self._permit(PermitRequest([key], LONGEST_PERMIT_SECONDS))
        if grant.granted:
            await asyncio.sleep(grant.wait_seconds)
        latest = asked_at + grant.travel_seconds + grant.wait_seconds + LATE_SECONDS
        if not grant.granted or time.monotonic() > latest:
            raise FetchPostponed("in_line", NOT_NOW, grant.wait_seconds)
        exchange = await self._fetcher.fetch(ask)
        if exchange.status in ROBOTS_BACK_OFF_STATUSES:
            told = retry_after(exchange.header(b"retry-after"), steady_now())
            penalty = FIRST_REST_SECONDS if told is None else min(told, LONGEST_PENALTY_SECONDS)
            await self._permit(PermitRequest([key], penalty=penalty))
        return exchange

    async def _permit(self, asked: PermitRequest) -> Grant:
        return (await self._channel.ask(CrawlerRequest(permit=asked))).grant or Grant(False, LONGEST_PERMIT_SECONDS)

    async def close(self) -> None:
        await self._channel.close()
