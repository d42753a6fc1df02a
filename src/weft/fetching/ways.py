"""The ways out of one process: how the next request to a site goes, and what became of the last.

``choose`` answers at once, from what the control plane last said of a site; what was used is told in turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from weft.clock import SECOND, Moment
from weft.fetching.exchange import Exit, NoAnswer
from weft.fetching.exits import Health, Rota
from weft.fetching.proxy_plan import BLOCKS, Plan, PlannedExit, Rule, Verdict
from weft.fetching.proxy_turns import ProxyTurn, ProxyTurned, SiteStanding, Used

ASK = Callable[[ProxyTurn], Awaitable[ProxyTurned]]
TELL_SECONDS = 2.0
"""What was used is told so often; a block at once."""
MOST_KNOWN = 100_000


class SitePaused(Exception):
    """A site is not asked at all for a while."""

    def __init__(self, site: str, seconds: float, why: str) -> None:
        super().__init__(f"{site} is not asked for {seconds:.0f} s: {why}")
        self.seconds = seconds


@dataclass(slots=True)
class _Site:
    rung: int
    probe: bool
    ask_again_at: float
    """When it is worth asking how it stands; by the process's own clock."""


@dataclass(frozen=True, slots=True)
class Way:
    """How one request goes."""

    site: str
    rung: int
    exit: Exit | None


class Ways:
    """Asks ``ask`` how sites stand, under one plan."""

    def __init__(self, plan: str, ask: ASK, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._ask, self._clock = plan, ask, clock
        self._plan: Plan | None = None
        self._revision = 0
        self._stop = ""
        self._sites: dict[str, _Site] = {}
        self._health: dict[str, Health] = {}
        self._rota = Rota()
        self._used: dict[tuple[str, str, int, Verdict], list[float]] = {}
        self._asking = asyncio.Lock()
        self._urgent = asyncio.Event()

    async def choose(self, site: str, session: str = "") -> Way:
        """How the next request to a site goes. Raises ``SitePaused``."""
        found = self._sites.get(site)
        if found is None or self._clock() >= found.ask_again_at:
            await self._turn([site])
            found = self._sites[site]
        rung, found.probe = (found.rung - 1, False) if found.probe else (found.rung, False)
        if rung == 0:
            return Way(site, 0, None)
        assert self._plan is not None
        return self._through(self._plan, site, rung, session, found)

    def _through(self, plan: Plan, site: str, rung: int, session: str, found: _Site) -> Way:
        again = max(1.0, found.ask_again_at - self._clock())
        if rung > len(plan.tiers):
            raise SitePaused(site, again, "it has blocked every way")
        if self._stop:
            if plan.budget.then == "direct":
                return Way(site, 0, None)
            raise SitePaused(site, 60.0, self._stop)
        tier = plan.tiers[rung - 1]
        able = [each for each in plan.exits if each.tier == tier]
        chosen = self._rota.pick(able, self._health, session, self._now())
        if chosen is None:
            raise SitePaused(site, 5.0, f"no {tier} proxy is well and free")
        return Way(site, rung, _exit(chosen))

    def tell(self, way: Way, verdict: Verdict | None, sent: int = 0, received: int = 0, seconds: float = 0.0) -> None:
        """What became of a request; None: nothing that says anything about the way."""
        name = way.exit.name if way.exit is not None else ""
        if name:
            self._rota.done(name)
        if verdict is None:
            return
        counts = self._used.setdefault((way.site, name, way.rung, verdict), [0, 0, 0, 0.0])
        for place, more in enumerate((1, sent, received, seconds)):
            counts[place] += more
        if verdict in BLOCKS or verdict == "proxy_error" or way.rung < self._rung(way.site):
            self._urgent.set()

    async def tell_on(self) -> None:
        """Tell what was used, again and again, until this is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_SECONDS):
                    await self._urgent.wait()
            self._urgent.clear()
            if self._used:
                with suppress(NoAnswer):
                    await self._turn([])

    async def tell_all(self) -> None:
        if self._used:
            await self._turn([])

    def covers(self, site: str) -> bool:
        """Whether there may be another way to a site than the direct one."""
        return self._plan is not None and self._plan.covers(site)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What the plan takes answers for, before what weft does by itself."""
        return () if self._plan is None else self._plan.rules

    async def _turn(self, sites: list[str]) -> None:
        async with self._asking:
            used, self._used = self._used, {}
            told = [_told(key, counts) for key, counts in used.items()]
            moved = {each.site for each in told if each.verdict in BLOCKS or each.rung < self._rung(each.site)}
            turn = ProxyTurn(self._name, self._revision, told, sorted({*sites, *moved}))
            try:
                turned = await self._ask(turn)
            except BaseException:
                self._keep(used)
                raise
            self._take(turned)

    def _take(self, turned: ProxyTurned) -> None:
        now = self._now()
        self._revision, self._plan, self._stop = turned.revision, turned.plan or self._plan, turned.stop
        self._health = {name: Health(until=now + round(left * SECOND)) for name, left in turned.ill.items()}
        if len(self._sites) > MOST_KNOWN:
            self._sites.clear()
        for each in turned.standings:
            self._sites[each.site] = self._site(each)

    def _site(self, standing: SiteStanding) -> _Site:
        again = self._clock() + max(0.5, standing.ask_again_seconds) if standing.rung else float("inf")
        return _Site(standing.rung, standing.probe, again)

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


def _told(key: tuple[str, str, int, Verdict], counts: list[float]) -> Used:
    site, name, rung, verdict = key
    requests, sent, received, seconds = counts
    return Used(site, name, rung, verdict, int(requests), int(sent), int(received), seconds)


def _exit(planned: PlannedExit) -> Exit:
    return Exit(name=planned.name, url=planned.url)
