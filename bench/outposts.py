"""200 workers over HTTPS on one gateway: what it takes while they wait, and how soon a run starts on one of them."""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.control import Control, make_certificate, open_control
from bench.fleet import again, ended, errors, joined, waits
from bench.latencies import Latencies, machine_load
from bench.measure import Figures, Goal, judge, table
from bench.roles import Roles, stage
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults, setups
from bench.starts import Starts
from bench.submitter import Submitter, poisson
from weft.app import App

IDLE_CPU, P99_MS = 15.0, 100.0
RATES = (20.0, 100.0)
CAPACITY = 10
SETTLE_SECONDS = 5.0


@dataclass(slots=True)
class Seen:
    """What one set-up showed, a figure for each run."""

    idle: Figures = field(default_factory=Figures)
    """Per cent of a core that the gateway takes while nothing happens."""
    errors: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    loads: dict[float, "Load"] = field(default_factory=dict)


@dataclass(slots=True)
class Load:
    """So many runs a second."""

    p50: Figures = field(default_factory=Figures)
    p99: Figures = field(default_factory=Figures)
    longest: Figures = field(default_factory=Figures)
    cpu: Figures = field(default_factory=Figures)
    """Milliseconds of the gateway's processor for each run, beyond what it takes anyway."""


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    found: dict[str, Seen] = {}
    with Servers() as servers:
        found_setups = chosen(setups(servers), options.only) if options.only else defaults(servers)
        chosen_ones = [each for each in found_setups if each.broker_name != "memory"]  # it rings in one process
        for run in range(options.runs):
            for setup in chosen_ones:
                seen = found.setdefault(setup.name, Seen())
                asyncio.run(measure(setup, seen, options))
                print(f"run {run + 1}: {setup.name}: {brief(seen)}; {machine_load()}", flush=True)
    print(report(found, options.workers))
    print(machine_load())
    return judge(goals(found, options.workers))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench outposts", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--idle", type=float, default=20, help="how many seconds nothing happens (20)")
    parser.add_argument("--seconds", type=float, default=15, help="how long each load lasts (15)")
    parser.add_argument("--workers", type=int, default=200, help="how many workers (200)")
    parser.add_argument("--processes", type=int, default=2, help="how many processes they share (2)")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="each set-up with all of these words; else the defaults"
    )
    return parser.parse_args(arguments)


async def measure(setup: Setup, seen: Seen, options: argparse.Namespace) -> None:
    async with stage(**setup.settings(), capacity=CAPACITY, log_level="warning") as (app, roles):
        await watch(app, roles, seen, options)


async def watch(app: App, roles: Roles, seen: Seen, options: argparse.Namespace) -> None:
    starts = Starts(roles.config.folder / "starts")
    starts.directory.mkdir()
    gateway = await open_control(roles, certificate=make_certificate(roles.config.folder))
    for number in range(options.processes):
        tokens = await make_tokens(app, options.workers // options.processes)
        command = ["bench.far_crew", f"far{number}", gateway.address, str(gateway.certificate), str(starts.directory)]
        roles.python(*command, *tokens)
    await joined(app, options.workers // options.processes * options.processes)
    await asyncio.sleep(SETTLE_SECONDS)
    idle = await gateway.at_rest(options.idle)
    seen.idle.add(idle * 100)
    for rate in RATES:
        await under_load(app, gateway, starts, seen, rate=rate, seconds=options.seconds, idle=idle)
    complaints = roles.complaints()
    seen.errors += await app.db.read(errors) + again(starts) + Counter({"loud lines": len(complaints)})
    seen.complaints += complaints[:3]


async def make_tokens(app: App, count: int) -> list[str]:
    return [(await app.keys.create("join", {}, by="bench", kind="join"))[1] for _ in range(count)]


async def under_load(
    app: App, gateway: Control, starts: Starts, seen: Seen, *, rate: float, seconds: float, idle: float
) -> None:
    submitter = Submitter(app)
    before, began = gateway.cpu, time.monotonic()
    await submitter.pace(poisson(rate), seconds)
    runs = len(submitter.committed)
    await ended(app, runs)
    spent = gateway.cpu - before - idle * (time.monotonic() - began)
    waited = waits(submitter, starts)
    seen.errors += Counter({"not started": runs - len(waited)})
    latencies, load = Latencies(waited), seen.loads.setdefault(rate, Load())
    load.p50.add(latencies.p50)
    load.p99.add(latencies.p99)
    load.longest.add(latencies.longest)
    load.cpu.add(spent / runs * 1000)


def brief(seen: Seen) -> str:
    loads = [f"p99 {load.p99.values[-1]:.0f} ms at {rate:g}/s" for rate, load in seen.loads.items()]
    return ", ".join([f"idle {seen.idle.values[-1]:.1f} %", *loads, f"{seen.errors.total()} errors"])


def report(found: dict[str, Seen], workers: int) -> str:
    rows = [
        [
            name,
            f"{rate:g}/s",
            f"{seen.idle.median:.1f}",
            f"{load.p50.median:.1f}",
            f"{load.p99.median:.1f}",
            f"{max(load.p99.values):.0f}",
            f"{max(load.longest.values):.0f}",
            f"{load.cpu.median:.2f}",
        ]
        for name, seen in found.items()
        for rate, load in seen.loads.items()
    ]
    head = [f"{workers} remote workers", "load", "idle CPU %", "p50 ms", "p99", "worst p99", "longest", "CPU ms a run"]
    lines = [f"{name}: {what}: {count}" for name, seen in found.items() for what, count in seen.errors.items() if count]
    lines += [f"{name} said: {line}" for name, seen in found.items() for line in seen.complaints]
    return "\n" + "\n".join([table(head, rows), *lines]) + "\n"


def goals(found: dict[str, Seen], workers: int) -> list[Goal]:
    asked: list[Goal] = []
    for name, seen in found.items():
        what = f"{name}, {workers} remote workers"
        asked.append(Goal(what=f"{what}, idle CPU", value=seen.idle.median, at_most=IDLE_CPU, unit=" %"))
        asked.append(Goal(what=f"{what}, errors", value=seen.errors.total(), at_most=0))
        asked += [
            Goal(what=f"{what}, dispatch p99 at {rate:g}/s", value=load.p99.median, at_most=P99_MS, unit=" ms")
            for rate, load in seen.loads.items()
        ]
    return asked
