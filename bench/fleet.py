"""A fleet: 100 workers with 1,000 runs at once and 900 starts a second, then 500 workers with 5,000 runs at once."""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from bench.latencies import Latencies, machine_load
from bench.measure import Goal, cpu_seconds, judge, table
from bench.roles import Process, Roles, stage
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults, setups
from bench.starts import Starts
from bench.submitter import Submitter, poisson
from bench.waiting import until
from weft.app import App
from weft.db import schema
from weft.db.database import Transaction

CAPACITY = 10
RATE = 900.0
P99_MS = 25.0
DRAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many workers, and runs long enough to keep about all of their places taken."""

    workers: int
    run_seconds: float
    p99_at_most: float | None = None

    @property
    def name(self) -> str:
        return f"{self.workers} workers"


FLEETS = (Fleet(100, 1.0, P99_MS), Fleet(500, 5.6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one fleet did."""

    fleet: Fleet
    setup: str
    runs: int
    rate: float
    at_once: int
    latencies: Latencies
    workers_cpu: float
    submitter_cpu: float
    server_cpu: float
    errors: Counter[str]
    complaints: Sequence[str]

    @property
    def what(self) -> str:
        return f"{self.setup}, {self.fleet.name}"


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    fleets = [each for each in FLEETS if each.workers in (options.workers or [fleet.workers for fleet in FLEETS])]
    with Servers() as servers:
        seen = [
            asyncio.run(measure(setup, fleet, options))
            for setup in (chosen(setups(servers), options.only) if options.only else defaults(servers))
            if setup.broker_name != "memory"
            for fleet in fleets
        ]
    print(report(seen))
    print(machine_load())
    return judge(goals(seen))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench fleet", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long runs are submitted (60)")
    parser.add_argument("--processes", type=int, default=2, help="how many processes the workers share (2)")
    parser.add_argument("--workers", type=int, nargs="+", metavar="COUNT", help="only the fleets of this size")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="each set-up with all of these words; else the defaults"
    )
    return parser.parse_args(arguments)


async def measure(setup: Setup, fleet: Fleet, options: argparse.Namespace) -> Seen:
    settings = setup.settings() | {"capacity": CAPACITY, "drain_seconds": DRAIN_SECONDS, "log_level": "warning"}
    async with stage(**settings) as (app, roles):
        return await watch(app, roles, setup, fleet, options)


async def watch(app: App, roles: Roles, setup: Setup, fleet: Fleet, options: argparse.Namespace) -> Seen:
    starts = Starts(roles.config.folder / "starts")
    starts.directory.mkdir()
    roles.weft("serve")  # so that a worker whose heart falters is noticed
    crews = hire(roles, fleet.workers, options.processes, starts.directory)
    await joined(app, fleet.workers)
    submitter = Submitter(app, {"sleep_seconds": fleet.run_seconds})
    before = spent(crews, setup)
    own, began = time.process_time(), time.monotonic()
    await submitter.pace(poisson(RATE), options.seconds)
    seconds = time.monotonic() - began
    workers_cpu, server_cpu = (after - first for after, first in zip(spent(crews, setup), before, strict=True))
    submitter_cpu = time.process_time() - own
    await ended(app, len(submitter.committed))
    complaints = roles.complaints()
    return Seen(
        fleet=fleet,
        setup=setup.name,
        runs=len(submitter.committed),
        rate=len(submitter.committed) / seconds,
        at_once=starts.at_once(),
        latencies=Latencies(waits(submitter, starts)),
        workers_cpu=workers_cpu / seconds,
        submitter_cpu=submitter_cpu / seconds,
        server_cpu=server_cpu / seconds,
        errors=await app.db.read(errors) + Counter({"loud lines": len(complaints)}) + again(starts),
        complaints=complaints[:3],
    )


def hire(roles: Roles, workers: int, processes: int, directory: Path) -> list[Process]:
    sizes = [workers // processes + (number < workers % processes) for number in range(processes)]
    return [roles.crew(f"crew{number}", size, directory) for number, size in enumerate(sizes)]


async def joined(app: App, workers: int) -> None:
    async def all_there() -> bool:
        return len([each for each in await app.workers.all() if each.state == "online"]) >= workers

    await until(f"{workers} workers joined", all_there)


async def ended(app: App, runs: int) -> None:
    """Return when every run has ended, or when none will any more."""
    left, moved_at = runs, time.monotonic()
    while left and time.monotonic() < moved_at + DRAIN_SECONDS:
        await asyncio.sleep(0.25)
        before, left = left, sum((await app.runs.counts()).values())
        if left < before:
            moved_at = time.monotonic()


def spent(crews: Iterable[Process], setup: Setup) -> tuple[float, float]:
    """Processor seconds of the workers and of the database server so far."""
    return sum(cpu_seconds(crew.pid) for crew in crews), sum(map(cpu_seconds, setup.pids()))


def waits(submitter: Submitter, starts: Starts) -> list[float]:
    started = {start.run_id: start.started for start in starts}
    return [
        (started[run_id] - committed) / 1e6 for run_id, committed in submitter.committed.items() if run_id in started
    ]


def errors(tx: Transaction) -> Counter[str]:
    """Runs that did not end well at their first attempt, and workers that were given up for lost."""
    runs, events = schema.runs, schema.events
    by_end = select(runs.c.state, runs.c.attempt, func.count()).group_by(runs.c.state, runs.c.attempt)
    found = Counter({f"{state}, attempt {attempt}": count for state, attempt, count in tx.rows(by_end)})
    found.pop("succeeded, attempt 1", None)
    lost = tx.value(select(func.count()).where(events.c.kind == "worker_lost"))
    return found + Counter({"workers lost": lost})


def again(starts: Starts) -> Counter[str]:
    times = Counter(start.run_id for start in starts)
    return Counter({"started twice": sum(count - 1 for count in times.values())})


def report(found: Sequence[Seen]) -> str:
    head = ["fleet", "runs", "starts/s", "at once", "p50 ms", "p99 ms", "longest", "CPU workers", "submitter", "server"]
    rows = [
        [
            seen.what,
            f"{seen.runs:,}",
            f"{seen.rate:,.0f}",
            f"{seen.at_once:,}",
            f"{seen.latencies.p50:.1f}",
            f"{seen.latencies.p99:.1f}",
            f"{seen.latencies.longest:.0f}",
            f"{seen.workers_cpu:.0%}",
            f"{seen.submitter_cpu:.0%}",
            f"{seen.server_cpu:.0%}",
        ]
        for seen in found
    ]
    lines = [f"{seen.what}: {what}: {count}" for seen in found for what, count in seen.errors.items()]
    lines += [f"{seen.what} said: {line}" for seen in found for line in seen.complaints]
    return "\n" + "\n".join([table(head, rows), *lines]) + "\n"


def goals(found: Sequence[Seen]) -> list[Goal]:
    asked: list[Goal] = []
    for seen in found:
        asked.append(Goal(what=f"{seen.what}, errors", value=seen.errors.total(), at_most=0))
        if seen.fleet.p99_at_most is not None:
            most = seen.fleet.p99_at_most
            asked.append(Goal(what=f"{seen.what}, dispatch p99", value=seen.latencies.p99, at_most=most, unit=" ms"))
            asked.append(Goal(what=f"{seen.what}, starts a second", value=seen.rate, at_least=RATE * 0.98))
    return asked
