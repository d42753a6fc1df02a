"""The frontier: what it costs to lease and complete addresses with 10,000,000 known, beside 10,000."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.frontier_ballast import CRAWL, fill
from bench.latencies import machine_load
from bench.measure import Figures, Goal, judge, table
from bench.plans import Plan, explain, statements
from bench.roles import place
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults
from weft.app import App, open_app
from weft.ports import DONE, HostLease, HostReport, Outcome, Turn

SMALL_KNOWN, SMALL_HOSTS = 10_000, 100
FEWEST_KNOWN = 1_000_000
ADDRESSES_PER_HOST = 1_000
"""In the large frontier."""
BATCH = 50
SHAPES = {"50 of one host": (1, 50), "1 of 50 hosts": (50, 1)}
"""What a turn completes and leases: so many hosts, so many addresses of each."""
TURNS = 60
AT_ONCE = 2
"""How many lease and complete side by side where the rate is measured."""
TIMES = 1.5
PER_SECOND = 15_000


@dataclass(slots=True)
class Walker:
    """One who completes what it holds with each turn, and leases as much again."""

    app: App
    hosts: int
    urls_per_host: int
    name: str = "bench"
    held: list[HostLease] = field(default_factory=list)

    async def walk(self, turns: int) -> None:
        for _ in range(turns):
            await self.step()

    async def step(self) -> float:
        """Milliseconds of one turn."""
        turn = Turn(
            reports=[
                HostReport(each.host, each.fence, outcomes(each), state=STATE, release=True) for each in self.held
            ],
            hosts=self.hosts,
            urls_per_host=self.urls_per_host,
        )
        began = time.perf_counter()
        turned = await self.app.frontier.turn(CRAWL, self.name, turn)
        took = (time.perf_counter() - began) * 1000
        self.held = turned.leases
        count = sum(len(each.urls) for each in self.held)
        if count != BATCH or not all(kept.held for kept in turned.kept):
            raise RuntimeError(f"{count} of {BATCH} addresses were given")
        return took


STATE = '{"delay": 1.0, "robots": "User-agent: *\\nDisallow: /private\\n", "robots_at": 1780315200000000}'


def outcomes(held: HostLease) -> list[Outcome]:
    told = {
        "fetched_at": 1_780_315_200_000_000,
        "etag": '"65f1-1a2b3c"',
        "digest": "0123456789abcdef" * 2,
        "size": 40_000,
    }
    return [Outcome(each.key, DONE, "", 200, **told) for each in held.urls]  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Seen:
    """Milliseconds of a turn of each shape on one database, when it knew little and when it knew much."""

    setup: str
    small: dict[str, Figures]
    large: dict[str, Figures]
    rate: float
    """Addresses a second that are leased and completed by those who do it side by side."""
    counting: Figures
    plans: Sequence[Plan]

    def times(self, shape: str) -> float:
        return self.large[shape].median / self.small[shape].median


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        seen = [asyncio.run(measure(setup, options.known)) for setup in chosen(defaults(servers), options.only)]
    print(report(seen, options.known))
    print(machine_load())
    return judge(goals(seen))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench frontier", description=__doc__)
    parser.add_argument("--known", type=int, default=1_000_000, help="addresses in the large frontier (1,000,000)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only set-ups with all of these words")
    options = parser.parse_args(arguments)
    if options.known < FEWEST_KNOWN:
        parser.error(f"--known is {options.known:,}; it must be at least {FEWEST_KNOWN:,}, or the queues run dry")
    return options


async def measure(setup: Setup, known: int) -> Seen:
    """Turn by turn on a small and a large frontier, so that a slow moment of the machine falls on both."""
    async with (
        filled(setup, SMALL_KNOWN, SMALL_HOSTS) as small,
        filled(setup, known, max(SMALL_HOSTS, known // ADDRESSES_PER_HOST)) as large,
    ):
        times = [{shape: Figures() for shape in SHAPES} for _ in (small, large)]
        for shape, (hosts, each) in SHAPES.items():
            walkers = [Walker(app, hosts, each) for app in (small, large)]
            for count in range(TURNS):
                for found, walker in zip(times, walkers, strict=True):
                    took = await walker.step()
                    if count:  # the first has nothing to complete
                        found[shape].add(took)
            for walker in walkers:
                await let_go(walker)
        rate = await side_by_side(large)
        seen = Seen(setup.name, times[0], times[1], rate, await counted(large), await plans(large))
    print(f"{setup.name}: {', '.join(f'{shape}: {seen.times(shape):.2f}×' for shape in SHAPES)}", flush=True)
    return seen


@asynccontextmanager
async def filled(setup: Setup, known: int, hosts: int) -> AsyncIterator[App]:
    with place(**setup.settings()) as config:
        app = await open_app(config)
        try:
            began = time.monotonic()
            await asyncio.to_thread(fill, app.db.engine, known, hosts)
            seconds = time.monotonic() - began
            print(f"{setup.name}: {known:,} addresses of {hosts:,} hosts were made in {seconds:.0f} s", flush=True)
            yield app
        finally:
            await app.close()


async def side_by_side(app: App) -> float:
    """How many addresses of the large frontier several lease and complete in a second."""
    walkers = [Walker(app, 1, BATCH, name=f"walker {number}") for number in range(AT_ONCE)]
    await asyncio.gather(*(walker.step() for walker in walkers))
    began = time.perf_counter()
    await asyncio.gather(*(walker.walk(TURNS) for walker in walkers))
    took = time.perf_counter() - began
    for walker in walkers:
        await let_go(walker)
    return AT_ONCE * TURNS * BATCH / took


async def let_go(walker: Walker) -> None:
    reports = [HostReport(each.host, each.fence, release=True) for each in walker.held]
    await walker.app.frontier.turn(CRAWL, walker.name, Turn(reports=reports))


async def counted(app: App) -> Figures:
    """Milliseconds that it takes to count everything."""
    figures = Figures()
    for _ in range(20):
        began = time.perf_counter()
        await app.frontier.counts(CRAWL)
        figures.add((time.perf_counter() - began) * 1000)
    return figures


async def plans(app: App) -> list[Plan]:
    walker = Walker(app, 5, 10)
    with statements(app.db.engine) as executed:
        await walker.step()
        await walker.step()
    return [await asyncio.to_thread(explain, app.db.engine, *each) for each in executed]


def report(found: Sequence[Seen], known: int) -> str:
    head = ["ms a turn", "completed and leased", f"{SMALL_KNOWN:,} known", f"{known:,} known", "times"]
    rows = [
        [
            seen.setup,
            shape,
            f"{seen.small[shape].median:.2f}",
            f"{seen.large[shape].median:.2f}",
            f"{seen.times(shape):.2f}",
        ]
        for seen in found
        for shape in SHAPES
    ]
    counts = [
        f"{seen.setup}: {seen.rate:,.0f} addresses a second, {AT_ONCE} at once; all is counted in "
        f"{seen.counting.median:.1f} ms"
        for seen in found
    ]
    used = [f"{seen.setup}: {plan}" for seen in found for plan in seen.plans]
    return "\n" + "\n".join([table(head, rows), "", *counts, "", *used]) + "\n"


def goals(found: Sequence[Seen]) -> list[Goal]:
    asked: list[Goal] = []
    for seen in found:
        for shape in SHAPES:
            what = f"{seen.setup}, {shape}, beside {SMALL_KNOWN:,} known"
            asked.append(Goal(what=what, value=seen.times(shape), at_most=TIMES, unit="×"))
        asked.append(Goal(what=f"{seen.setup}, addresses a second", value=seen.rate, at_least=PER_SECOND))
        whole = sum("urls" in plan.whole for plan in seen.plans)
        asked.append(Goal(what=f"{seen.setup}, statements that read all addresses", value=whole, at_most=0))
    return asked
