"""The client side of a proxy plan in a process that fetches: which exit the next request uses, and what is reported.

``choose`` answers at once, from what the control plane last said of a site; usage is reported in turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from weft.clock import SECOND, Moment
from weft.fetching.egress import Egress
from weft.fetching.model import Exchange, FetchError, FetchRequest, ProxyExit
from weft.fetching.urls import host_of
from weft.proxies.escalation import verdict_of, verdict_of_error
from weft.proxies.exits import ExitHealth, ExitRotation
from weft.proxies.model import (
    BLOCKS,
    PlannedExit,
    ProxyPlan,
    ProxyTurn,
    ProxyTurnReply,
    ProxyUsage,
    SiteDirective,
    Verdict,
    VerdictRule,
)

AskProxies = Callable[[ProxyTurn], Awaitable[ProxyTurnReply]]
REPORT_SECONDS = 2.0
"""What was used is told so often; a block at once."""
MOST_KNOWN = 100_000


class SitePaused(Exception):
    """A site is not asked at all for a while."""

    def __init__(self, site: str, seconds: float, why: str) -> None:
        super().__init__(f"{site} is not asked for {seconds:.0f} s: {why}")
        self.seconds = seconds


@dataclass(slots=True)
class _RoutedSite:
    rung: int
    probe: bool
    ask_again_at: float
    """When it is worth asking how it stands; by the process's own clock."""


@dataclass(frozen=True, slots=True)
class ProxyChoice:
    """How one request goes."""

    site: str
    rung: int
    exit: ProxyExit | None


class ProxyRouter:
    """Asks ``ask`` how sites stand, under one plan."""

    def __init__(self, plan: str, ask: AskProxies, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._ask, self._clock = plan, ask, clock
        self._plan: ProxyPlan | None = None
        self._revision = 0
        self._stop = ""
        self._sites: dict[str, _RoutedSite] = {}
        self._health: dict[str, ExitHealth] = {}
        self._rotation = ExitRotation()
        self._used: dict[tuple[str, str, int, Verdict], list[float]] = {}
        self._asking = asyncio.Lock()
        self._urgent = asyncio.Event()

    async def choose(self, site: str, session: str = "") -> ProxyChoice:
        """How the next request to a site goes. Raises ``SitePaused``."""
        found = self._sites.get(site)
        if found is None or self._clock() >= found.ask_again_at:
            await self._turn([site])
            found = self._sites[site]
        rung, found.probe = (found.rung - 1, False) if found.probe else (found.rung, False)
        if rung == 0:
            return ProxyChoice(site, 0, None)
        assert self._plan is not None
        return self._through(self._plan, site, rung, session, found)

    def _through(self, plan: ProxyPlan, site: str, rung: int, session: str, found: _RoutedSite) -> ProxyChoice:
        again = max(1.0, found.ask_again_at - self._clock())
        if rung > len(plan.tiers):
            raise SitePaused(site, again, "it has blocked every way")
        if self._stop:
            if plan.budget.then == "direct":
                return ProxyChoice(site, 0, None)
            raise SitePaused(site, 60.0, self._stop)
        tier = plan.tiers[rung - 1]
        able = [each for each in plan.exits if each.tier == tier]
        chosen = self._rotation.pick(able, self._health, session, self._now())
        if chosen is None:
            raise SitePaused(site, 5.0, f"no {tier} proxy is well and free")
        return ProxyChoice(site, rung, _exit(chosen))

    def tell(
        self, way: ProxyChoice, verdict: Verdict | None, sent: int = 0, received: int = 0, seconds: float = 0.0
    ) -> None:
        """What became of a request; None: nothing that says anything about the way."""
        name = way.exit.name if way.exit is not None else ""
        if name:
            self._rotation.done(name)
        if verdict is None:
            return
        counts = self._used.setdefault((way.site, name, way.rung, verdict), [0, 0, 0, 0.0])
        for place, more in enumerate((1, sent, received, seconds)):
            counts[place] += more
        if verdict in BLOCKS or verdict == "proxy_error" or way.rung < self._rung(way.site):
            self._urgent.set()

    async def report_forever(self) -> None:
        """Tell what was used, again and again, until this is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await self._urgent.wait()
            self._urgent.clear()
            if self._used:
                with suppress(FetchError):
                    await self._turn([])

    async def flush(self) -> None:
        if self._used:
            await self._turn([])

    def covers(self, site: str) -> bool:
        """Whether there may be another way to a site than the direct one."""
        return self._plan is not None and self._plan.covers(site)

    @property
    def rules(self) -> tuple[VerdictRule, ...]:
        """What the plan takes answers for, before what weft does by itself."""
        return () if self._plan is None else self._plan.rules

    async def _turn(self, sites: list[str]) -> None:
        async with self._asking:
            used, self._used = self._used, {}
            told = [_usage(key, counts) for key, counts in used.items()]
            moved = {each.site for each in told if each.verdict in BLOCKS or each.rung < self._rung(each.site)}
            turn = ProxyTurn(self._name, self._revision, told, sorted({*sites, *moved}))
            try:
                turned = await self._ask(turn)
            except BaseException:
                self._keep(used)
                raise
            self._take(turned)

    def _take(self, turned: ProxyTurnReply) -> None:
        now = self._now()
        self._revision, self._plan, self._stop = turned.revision, turned.plan or self._plan, turned.stop
        self._health = {name: ExitHealth(until=now + round(left * SECOND)) for name, left in turned.ill.items()}
        if len(self._sites) > MOST_KNOWN:
            self._sites.clear()
        for each in turned.site_states:
            self._sites[each.site] = self._site(each)

    def _site(self, site_state: SiteDirective) -> _RoutedSite:
        again = self._clock() + max(0.5, site_state.ask_again_seconds) if site_state.rung else float("inf")
        return _RoutedSite(site_state.rung, site_state.probe, again)

    def _keep(self, used: dict[tuple[str, str, int, Verdict], list[float]]) -> None:
        """Tell later what could not be told now."""
        for key, counts in used.items():
            kept = self._used.setdefault(key, [0, 0, 0, 0.0])
            for place, more in enumerate(counts):
                kept[place] += more

    def _rung(self, site: str) -> int:
        found = self._sites.get(site)
        return 0 if found is None else found.rung

    def _now(self) -> Moment:
        return round(self._clock() * SECOND)


def _usage(key: tuple[str, str, int, Verdict], counts: list[float]) -> ProxyUsage:
    site, name, rung, verdict = key
    requests, sent, received, seconds = counts
    return ProxyUsage(site, name, rung, verdict, int(requests), int(sent), int(received), seconds)


def _exit(planned: PlannedExit) -> ProxyExit:
    return ProxyExit(name=planned.name, url=planned.url)


RATE_LIMIT_STATUSES = frozenset((429, 503))
"""Who answers with these says when to come back, and is listened to."""
LONGEST_PAUSE_SECONDS = 600.0
"""A site that has blocked every way is looked at again after so long."""
LAST_REPORT_SECONDS = 5.0


class FetchPostponed(FetchError):
    """The page is not to be had this way: try again after so many seconds, perhaps by another."""

    def __init__(self, kind: str, sentence: str, seconds: float = 0.0) -> None:
        super().__init__(kind, sentence)
        self.seconds = seconds


class ProxiedEgress:
    """Fetches as an egress does. A page that a site blocks is put off, since the next way may be another."""

    def __init__(self, egress: Egress, router: ProxyRouter, hang_up: Callable[[], Awaitable[None]]) -> None:
        self._egress, self._router, self._hang_up = egress, router, hang_up
        self._telling: asyncio.Task[None] | None = None

    async def fetch(self, ask: FetchRequest) -> Exchange:
        """One request. Raises ``FetchPostponed`` besides ``FetchError``."""
        if self._telling is None:
            self._telling = asyncio.create_task(self._router.report_forever())
        site, began = host_of(ask.url), time.perf_counter()
        try:
            way = await self._router.choose(site)
        except SitePaused as paused:
            raise FetchPostponed("site_paused", str(paused), paused.seconds) from paused
        waited = time.perf_counter() - began
        exchange = await self._fetch(ask, way)
        exchange.sent_after += waited
        exchange.seconds += waited
        verdict = verdict_of(exchange, self._router.rules)
        self._router.tell(way, verdict, exchange.sent_bytes, exchange.received_bytes, exchange.seconds)
        if verdict not in BLOCKS or ask.begin_suffices or exchange.status in RATE_LIMIT_STATUSES:
            return exchange
        if not self._router.covers(site):
            return exchange
        raise FetchPostponed("blocked", f"{site} does not let this request through")

    async def _fetch(self, ask: FetchRequest, way: ProxyChoice) -> Exchange:
        try:
            return await self._egress.fetch(replace(ask, exit=way.exit))
        except FetchError as problem:
            self._router.tell(way, verdict_of_error(problem, way.exit is not None))
            raise
        except BaseException:
            self._router.tell(way, None)
            raise

    async def close(self) -> None:
        """Tell what was not told yet, and end all connections."""
        if self._telling is not None:
            self._telling.cancel()
        with suppress(Exception):  # whoever would listen may be gone
            async with asyncio.timeout(LAST_REPORT_SECONDS):
                await self._router.flush()
        await self._hang_up()
        await self._egress.close()
