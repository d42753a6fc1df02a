"""Dispatch: from the commit of a submit to the start of its executor, idle and under load, with every broker."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.crew import crew
from bench.latencies import Latencies, machine_load
from bench.measure import Figures, Goal, judge, table
from bench.roles import Roles, place
from bench.servers import Servers
from bench.setups import Setup, chosen, setups
from bench.starts import Starts
from bench.submitter import Submitter, now_and_then, poisson
from bench.waiting import until
from weft.app import App, open_app
from weft.config import Config
from weft.workers.heartbeat import Heartbeats

CAPACITY = 50
BACKLOG = 5_000
A_SECOND = 167.0
AHEAD = 500
"""How many runs may wait while submitting and working are measured together."""
CLIENTS = 8
AT_ONCE = 10
"""How many runs one submit brings at half load: one by one, a single client could not keep up."""

P50_MS, P99_MS, P99_BUSY_MS = 5.0, 15.0, 50.0
LOADS = ("idle", "167/s", "half load")


@dataclass(slots=True)
class Result:
    """Percentiles of one set-up at one load, from several runs."""

    p50: Figures = field(default_factory=Figures)
    p99: Figures = field(default_factory=Figures)
    longest: Figures = field(default_factory=Figures)
    rate: Figures = field(default_factory=Figures)

    def add(self, seen: Latencies, seconds: float) -> None:
        self.p50.add(seen.p50)
        self.p99.add(seen.p99)
        self.longest.add(seen.longest)
        self.rate.add(len(seen) / seconds)


Results = dict[tuple[str, str], Result]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    results: Results = {}
    with Servers() as servers:
        found = chosen(setups(servers), options.only)
        for run in range(options.runs):
            for setup in found:
                for load, seen in asyncio.run(measure(setup, options.seconds, options.maximum)).items():
                    results.setdefault((setup.name, load), Result()).add(seen, options.seconds)
                    print(f"run {run + 1}: {setup.name}, {load}: p99 {seen.p99:.1f} ms of {len(seen)}", flush=True)
    print(report(results))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench dispatch", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--seconds", type=float, default=5, help="how long each load lasts (5)")
    parser.add_argument(
        "--maximum",
        choices=["drain", "together"],
        default="drain",
        help="half load is half of what: a backlog worked off, or submitting and working at once (drain)",
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only set-ups with all of these words")
    return parser.parse_args(arguments)


async def measure(setup: Setup, seconds: float, maximum: str) -> dict[str, Latencies]:
    """All loads on one new database, after a backlog that warms it up and shows the most that it can do."""
    with place(**setup.settings(), capacity=CAPACITY) as config:
        app = await open_app(config)
        starts = Starts(config.folder / "starts")
        starts.directory.mkdir()
        submitter = Submitter(app)
        await submitter.fill(BACKLOG)
        try:
            async with working(app, config, starts.directory, alone=setup.broker_name == "memory"):
                await all_started(submitter, starts)
                most = starts.rate() if maximum == "drain" else await rate_together(submitter, starts)
                idle = await at(submitter, starts, now_and_then(), seconds)
                steady = await at(submitter, starts, poisson(A_SECOND), seconds)
                busy = await at(submitter, starts, poisson(most / 2 / AT_ONCE), seconds, AT_ONCE)
        finally:
            await app.close()
        return dict(zip(LOADS, (idle, steady, busy), strict=True))


async def rate_together(submitter: Submitter, starts: Starts, seconds: float = 2.0) -> float:
    """Runs a second while they are submitted as fast as they start, a few hundred ahead."""
    before, begun = starts.total(), time.monotonic()

    async def submit() -> None:
        while time.monotonic() < begun + seconds:
            if len(submitter.committed) - starts.total() < AHEAD:
                await submitter.submit(AT_ONCE)
            else:
                await asyncio.sleep(0.002)

    await asyncio.gather(*(submit() for _ in range(CLIENTS)))
    rate = (starts.total() - before) / (time.monotonic() - begun)
    await all_started(submitter, starts)
    return rate


async def at(
    submitter: Submitter, starts: Starts, gaps: Iterator[float], seconds: float, at_once: int = 1
) -> Latencies:
    """What the runs of one load waited."""
    submitter.committed.clear()
    before = starts.total()
    await submitter.pace(gaps, seconds, at_once)
    await all_started(submitter, starts, before)
    started = {start.run_id: start.started for start in starts}
    return Latencies((started[run_id] - at) / 1e6 for run_id, at in submitter.committed.items())


async def all_started(submitter: Submitter, starts: Starts, before: int = 0) -> None:
    wanted = before + len(submitter.committed)

    async def started() -> bool:
        return starts.total() >= wanted

    await until(f"{wanted} runs started", started, step=0.02)


@asynccontextmanager
async def working(app: App, config: Config, directory: Path, *, alone: bool) -> AsyncIterator[None]:
    """A worker: in a process of its own, or in this one for a broker that does not reach further."""
    async with AsyncExitStack() as stack:
        if alone:
            heartbeats = Heartbeats(app.protocol)
            stack.callback(heartbeats.close)
            [worker] = crew(app, heartbeats, "worker", 1, directory)
            stack.push_async_callback(asyncio.gather, asyncio.create_task(worker.run()))
            stack.callback(worker.drain)
        else:
            stack.enter_context(Roles(config)).crew("worker", 1, directory)
        yield


def report(results: Results) -> str:
    head = ["ms from commit to start", "load", "runs/s", "p50", "p99", "worst p99", "longest"]
    rows = [
        [
            name,
            load,
            f"{result.rate.median:,.0f}",
            f"{result.p50.median:.2f}",
            f"{result.p99.median:.2f}",
            f"{max(result.p99.values):.1f}",
            f"{max(result.longest.values):.0f}",
        ]
        for (name, load), result in results.items()
    ]
    return "\n" + table(head, rows) + "\n"


def goals(results: Results) -> list[Goal]:
    found: list[Goal] = []
    for (name, load), result in results.items():
        what = f"{name}, {load}"
        if load == "half load":
            found.append(Goal(what=f"{what}, p99", value=result.p99.median, at_most=P99_BUSY_MS, unit=" ms"))
        else:
            found.append(Goal(what=f"{what}, p50", value=result.p50.median, at_most=P50_MS, unit=" ms"))
            found.append(Goal(what=f"{what}, p99", value=result.p99.median, at_most=P99_MS, unit=" ms"))
    return found
