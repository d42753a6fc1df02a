"""Chooses the egress of a crawl: direct, through a proxy plan, or with a delay for each IP address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from weft.clock import seconds
from weft.crawl_spec import CrawlSpec
from weft.crawler.host_scheduler import HeldHost
from weft.crawler.messages import CrawlerRequest, CrawlTurn, PermitRequest
from weft.crawler.reporter import PendingReport
from weft.crawler.stats import CrawlStats
from weft.crawler.steady_clock import steady_now
from weft.crawler.worker_channel import SideChannel, TurnRefused, WorkerChannel, WorkerGone
from weft.fetching.egress import Egress
from weft.fetching.model import Exchange, FetchRequest
from weft.fetching.throttle import RequestThrottle
from weft.fetching.urls import host_of
from weft.ports import FAILED, QUEUED, REQUEUED, Given, Grant, Outcome
from weft.proxies.client import LONGEST_PAUSE_SECONDS, FetchPostponed, ProxiedEgress, ProxyRouter
from weft.proxies.model import ProxyTurn, ProxyTurnReply

LONGEST_WAIT_SECONDS = 1.3
"""A place further away is not taken: the limiter may forget it before it is used."""
HIGHEST_RATE = 1_000_000.0
MOST_ADDRESSES = 10
"""Of one host, in whose lines a request waits."""
MOST_HOSTS = 10_000


class AddressThrottle:
    """Fetches as what it stands before does, each request at the turn of its address."""

    def __init__(self, fetcher: Egress | ProxiedEgress, delay_seconds: float, channel: SideChannel) -> None:
        self._fetcher, self._channel = fetcher, channel
        self._turns = RequestThrottle(_WorkerLimiter(channel, min(1 / delay_seconds, HIGHEST_RATE)))
        self._addresses: dict[str, list[str]] = {}
        """Of hosts that were asked before."""

    async def fetch(self, ask: FetchRequest) -> Exchange:
        host, began = host_of(ask.url), time.perf_counter()
        addresses = self._addresses.get(host) or await self._addresses_of(ask)
        if addresses:
            await self._turns.come([f"address:{each}" for each in addresses[:MOST_ADDRESSES]])
        waited = time.perf_counter() - began
        exchange = await self._fetcher.fetch(ask)
        if exchange.address:
            if len(self._addresses) >= MOST_HOSTS:
                self._addresses.clear()
            self._addresses[host] = [exchange.address]
        exchange.sent_after += waited
        exchange.seconds += waited
        return exchange

    async def _addresses_of(self, ask: FetchRequest) -> list[str]:
        """All that the first request to a host may go to; none where it goes through a proxy, which is found out."""
        if not isinstance(self._fetcher, Egress):
            return []
        try:
            async with asyncio.timeout(ask.deadline_seconds):
                return await self._fetcher.addresses_of(ask.url)
        except TimeoutError:
            return []

    async def close(self) -> None:
        await self._channel.close()
        await self._fetcher.close()


class _WorkerLimiter:
    """The part of a limiter that a place is asked of, at the worker."""

    def __init__(self, channel: SideChannel, rate: float) -> None:
        self._channel, self._rate = channel, rate

    async def reserve(self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0) -> Grant:
        wait = min(longest_wait, LONGEST_WAIT_SECONDS)
        answer = await self._channel.ask(CrawlerRequest(permit=PermitRequest(list(keys), wait, rate=self._rate)))
        return answer.grant or Grant(False, LONGEST_WAIT_SECONDS)

    def holds(self, grant: Grant) -> bool:
        return grant.granted


RETRY_SECONDS = 60.0


def egress_for(egress: Egress, spec: CrawlSpec) -> Egress | ProxiedEgress | AddressThrottle:
    """The egress itself where the spec names neither a proxy plan nor a delay of addresses."""
    plan, delay, channel = spec.fetching.proxies, spec.politeness.address_delay_seconds, SideChannel()
    fetcher: Egress | ProxiedEgress = egress
    if plan:
        fetcher = ProxiedEgress(egress, ProxyRouter(plan, partial(_turned, channel)), channel.close)
    return AddressThrottle(fetcher, delay, SideChannel()) if delay else fetcher


async def check_proxies(channel: WorkerChannel, plan: str) -> None:
    """Raise ``TurnRefused`` where there is no such plan, or a secret of it is missing."""
    if plan:
        await channel.ask(CrawlerRequest(CrawlTurn(proxies=ProxyTurn(plan))))


def postpone(
    held: HeldHost, given: Given, problem: FetchPostponed, retries: int, pending: PendingReport, stats: CrawlStats
) -> None:
    """A site blocks the way, or has blocked all of them: again, by another way or later."""
    at, wait = steady_now(), min(problem.seconds, LONGEST_PAUSE_SECONDS)
    reason = REQUEUED if given.reason == REQUEUED else problem.kind
    held.saved = False
    stats.problems += 1
    pending.settled += 1
    if wait:
        held.politeness.block(at + seconds(wait))
        outcome = Outcome(given.key, QUEUED, reason, 0, held.politeness.due(), given.tries)
    elif given.tries >= retries:
        outcome = Outcome(given.key, FAILED, problem.kind, tries=given.tries + 1, fetched_at=at)
    else:
        stats.retries += 1
        outcome = Outcome(given.key, QUEUED, reason, 0, held.politeness.due(), given.tries + 1)
    held.outcomes.append(outcome)


async def _turned(channel: SideChannel, turn: ProxyTurn) -> ProxyTurnReply:
    try:
        answer = await channel.ask(CrawlerRequest(CrawlTurn(proxies=turn)))
    except TurnRefused as problem:  # somebody has deleted the plan meanwhile, or a secret of it
        raise FetchPostponed("site_paused", str(problem), RETRY_SECONDS) from problem
    if answer.turned is None or answer.turned.proxies is None:
        raise WorkerGone("the run is somebody else's by now")
    return answer.turned.proxies
