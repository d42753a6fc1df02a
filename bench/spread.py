"""Spread: how evenly three workers share runs that come one by one and in bursts, and what that costs in latency."""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.fleet import joined
from bench.latencies import Latencies, machine_load
from bench.measure import Goal, judge, table
from bench.roles import stage
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults, setups
from bench.starts import Starts
from bench.submitter import Submitter
from bench.waiting import until
from weft.app import App

WORKERS, CAPACITY = 3, 12
MODES = ("greedy", "hesitant")
"""Workers that take all they can, as they did before, and workers that leave runs to those that are less busy."""


@dataclass(frozen=True, slots=True)
class Load:
    """How runs come."""

    name: str
    runs: int
    at_once: int
    gap: float
    run_seconds: float
    apart_at_most: int

    def scaled(self, scale: float) -> "Load":
        """So many of the runs, in whole bursts."""
        return replace(self, runs=max(1, round(self.runs * scale / self.at_once)) * self.at_once)


LOADS = (
    Load("one by one, long", 27, 1, 0.1, 6.0, 1),
    Load("one by one, short", 60, 1, 0.05, 0.0, 1),
    Load("bursts of 5", 25, 5, 0.5, 6.0, 2),
)


@dataclass(frozen=True, slots=True)
class Seen:
    setup: str
    mode: str
    load: Load
    spread: Sequence[int]
    latencies: Latencies

    @property
    def apart(self) -> int:
        return max(self.spread) - min(self.spread)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench spread", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="each set-up with all of these words; else the defaults"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="the part of all runs that is submitted (1)")
    options = parser.parse_args(arguments)
    loads = [load.scaled(options.scale) for load in LOADS]
    with Servers() as servers:
        found = chosen(setups(servers), options.only) if options.only else defaults(servers)
        seen = [
            told(asyncio.run(measure(setup, mode, load)))
            for setup in found
            if setup.broker_name != "memory"
            for load in loads
            for mode in MODES
        ]
    print(report(seen))
    print(machine_load())
    return judge(goals(seen))


def told(seen: Seen) -> Seen:
    runs = "/".join(map(str, seen.spread))
    print(f"{seen.setup}, {seen.load.name}, {seen.mode}: {runs}, p50 {seen.latencies.p50:.1f} ms", flush=True)
    return seen


async def measure(setup: Setup, mode: str, load: Load) -> Seen:
    settings = setup.settings() | {"capacity": CAPACITY, "log_level": "warning"}
    async with stage(**settings) as (app, roles):
        starts = Starts(roles.config.folder / "starts")
        starts.directory.mkdir()
        for number in range(WORKERS):
            roles.crew(f"worker{number}", 1, starts.directory, mode)
        await joined(app, WORKERS)
        return await watch(app, starts, setup, mode, load)


async def watch(app: App, starts: Starts, setup: Setup, mode: str, load: Load) -> Seen:
    submitter = Submitter(app, {"sleep_seconds": load.run_seconds})
    for _ in range(load.runs // load.at_once):
        await submitter.submit(load.at_once)
        await asyncio.sleep(load.gap)

    async def all_started() -> bool:
        return starts.total() >= load.runs

    await until(f"{load.runs} runs started", all_started, step=0.02)
    started = {start.run_id: start.started for start in starts}
    waited = Latencies((started[run_id] - at) / 1e6 for run_id, at in submitter.committed.items())
    return Seen(setup.name, mode, load, starts.counts(), waited)


def report(found: Sequence[Seen]) -> str:
    """The figures, and how much later than with greedy workers a run starts, at the median."""
    greedy = {(seen.setup, seen.load.name): seen.latencies.p50 for seen in found if seen.mode == "greedy"}
    head = ["set-up", "runs", "workers", "runs each", "apart", "p50 ms", "later by", "p99 ms", "longest"]
    rows = [
        [
            seen.setup,
            seen.load.name,
            seen.mode,
            "/".join(map(str, seen.spread)),
            str(seen.apart),
            f"{seen.latencies.p50:.1f}",
            f"{seen.latencies.p50 - greedy[seen.setup, seen.load.name]:+.1f}" if seen.mode != "greedy" else "",
            f"{seen.latencies.p99:.1f}",
            f"{seen.latencies.longest:.0f}",
        ]
        for seen in found
    ]
    return "\n" + table(head, rows) + "\n"


def goals(found: Sequence[Seen]) -> list[Goal]:
    return [
        Goal(what=f"{seen.setup}, {seen.load.name}, runs apart", value=seen.apart, at_most=seen.load.apart_at_most)
        for seen in found
        if seen.mode == "hesitant"
    ]
