"""Growth: what a lease costs with 1,000,000 runs waiting and 10,000,000 ended, beside 1,000 waiting and none ended."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.ballast import fill, sample
from bench.latencies import machine_load
from bench.measure import Figures, Goal, judge, table
from bench.plans import Plan, explain, statements
from bench.roles import place
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults
from weft.app import App, open_app
from weft.runs.model import Ending
from weft.workers.protocol import WorkerInfo

SMALL = 1_000
QUEUED, ENDED = 1_000_000, 10_000_000
BATCHES = {1: 200, 100: 40}
"""How many runs a lease asks for, and how often it is measured."""
WORKER = 1
"""The id of a database's first worker."""
TIMES = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Milliseconds of a lease of each size on one database, when it was small and when it was large."""

    setup: str
    small: dict[int, Figures]
    large: dict[int, Figures]
    plans: Sequence[Plan]

    def times(self, batch: int) -> float:
        return self.large[batch].median / self.small[batch].median


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        seen = [asyncio.run(measure(setup, options.scale)) for setup in chosen(defaults(servers), options.only)]
    print(report(seen))
    print(machine_load())
    return judge(goals(seen))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench growth", description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="the part of the 11,000,000 runs that are there (1)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only set-ups with all of these words")
    return parser.parse_args(arguments)


async def measure(setup: Setup, scale: float) -> Seen:
    """Lease from a small and a large database in turn, so that a slow moment of the machine falls on both."""
    queued, ended = int(QUEUED * scale), int(ENDED * scale)
    async with filled(setup, queued=SMALL, ended=0) as small, filled(setup, queued=queued, ended=ended) as large:
        times = [{batch: Figures() for batch in BATCHES} for _ in (small, large)]
        for batch, count in BATCHES.items():
            for _ in range(count):
                for found, app in zip(times, (small, large), strict=True):
                    found[batch].add(await lease_once(app, WORKER, batch))
        seen = Seen(setup.name, times[0], times[1], await lease_plans(large, WORKER))
    print(
        f"{setup.name}: {', '.join(f'a lease of {batch}: {seen.times(batch):.2f}×' for batch in BATCHES)}", flush=True
    )
    return seen


@asynccontextmanager
async def filled(setup: Setup, *, queued: int, ended: int) -> AsyncIterator[App]:
    """A database with so many runs and one worker."""
    with place(**setup.settings()) as config:
        app = await open_app(config)
        try:
            began = time.monotonic()
            await fill(app, queued=queued, ended=ended)
            seconds = time.monotonic() - began
            print(f"{setup.name}: {queued:,} waiting and {ended:,} ended were made in {seconds:.0f} s", flush=True)
            card = WorkerInfo(name="bench", host="here", pid=1, version="", capacity=1000)
            assert await app.protocol.join(card) == WORKER
            yield app
        finally:
            await app.close()


async def lease_once(app: App, worker_id: int, want: int) -> float:
    """Milliseconds of one lease. What it took is ended and replaced, so that as many wait for the next."""
    began = time.perf_counter()
    leases = await app.protocol.lease(worker_id, want)
    took = (time.perf_counter() - began) * 1000
    if len(leases) != want:
        raise RuntimeError(f"{len(leases)} of {want} runs were leased")
    await app.protocol.finish(worker_id, [Ending(one.run_id, one.attempt, "succeeded") for one in leases])
    await app.runs.submit([sample(one.run_id) for one in leases])
    return took


async def lease_plans(app: App, worker_id: int) -> list[Plan]:
    with statements(app.db.engine) as executed:
        await app.protocol.lease(worker_id, 100)
    return [await asyncio.to_thread(explain, app.db.engine, *each) for each in executed]


def report(found: Sequence[Seen]) -> str:
    head = ["ms a lease", "runs a lease", "1,000 waiting", "all", "times"]
    rows = [
        [
            seen.setup,
            batch,
            f"{seen.small[batch].median:.2f}",
            f"{seen.large[batch].median:.2f}",
            f"{seen.times(batch):.2f}",
        ]
        for seen in found
        for batch in BATCHES
    ]
    plans = [f"{seen.setup}: {plan}" for seen in found for plan in seen.plans]
    return "\n" + "\n".join([table(head, rows), "", *plans]) + "\n"


def goals(found: Sequence[Seen]) -> list[Goal]:
    asked: list[Goal] = []
    for seen in found:
        for batch in BATCHES:
            what = f"{seen.setup}, lease of {batch}, beside 1,000 waiting"
            asked.append(Goal(what=what, value=seen.times(batch), at_most=TIMES, unit="×"))
        whole = sum("runs" in plan.whole for plan in seen.plans)
        asked.append(Goal(what=f"{seen.setup}, statements that read all runs", value=whole, at_most=0))
    return asked
