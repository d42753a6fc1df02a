"""1,000 open event streams on one gateway: the memory of each, and how soon an event reaches all of them."""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec

from bench.control import Control, make_certificate, open_control
from bench.latencies import Latencies, machine_load
from bench.measure import Figures, Goal, judge, table
from bench.roles import Process, Roles, end, stage
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults, setups
from bench.submitter import poisson
from bench.waiting import until
from weft.access.model import EVERYWHERE, Role
from weft.app import App

KILOBYTES, P99_MS = 100.0, 250.0
SETTLE_SECONDS = 4.0
KEYS = 20
"""How many callers the streams belong to: half of them see everything, half one project."""
PROJECT = "bench"
RUN = {"project": PROJECT, "kind": "noop", "spec": {}}
ORIGINS = ("the same gateway", "another gateway")


class Heard(msgspec.Struct):
    """What a process of listeners has heard."""

    cut: int
    streams: list[list[tuple[int, float]]]


@dataclass(slots=True)
class Load:
    """Events that came in through one of the gateways."""

    p50: Figures = field(default_factory=Figures)
    p99: Figures = field(default_factory=Figures)
    longest: Figures = field(default_factory=Figures)
    deliveries: Figures = field(default_factory=Figures)
    """How many a second."""
    cpu: Figures = field(default_factory=Figures)
    """Microseconds of the gateway's processor for each delivery, with all else that it does."""


@dataclass(slots=True)
class Seen:
    """What one set-up showed, a figure for each run."""

    kilobytes: Figures = field(default_factory=Figures)
    idle: Figures = field(default_factory=Figures)
    loads: dict[str, Load] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    found: dict[str, Seen] = {}
    with Servers() as servers:
        chosen_ones = chosen(setups(servers), options.only) if options.only else defaults(servers)
        for run in range(options.runs):
            for setup in chosen_ones:
                seen = found.setdefault(setup.name, Seen())
                asyncio.run(measure(setup, seen, options))
                print(f"run {run + 1}: {setup.name}: {brief(seen)}; {machine_load()}", flush=True)
    print(report(found, options.streams))
    print(machine_load())
    return judge(goals(found, options.streams))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench streams", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--seconds", type=float, default=10, help="how long events come through each gateway (10)")
    parser.add_argument("--streams", type=int, default=1000, help="how many streams (1000)")
    parser.add_argument("--rate", type=float, default=10, help="events a second (10)")
    parser.add_argument("--tls", action="store_true", help="over HTTPS")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="each set-up with all of these words; else the defaults"
    )
    return parser.parse_args(arguments)


async def measure(setup: Setup, seen: Seen, options: argparse.Namespace) -> None:
    async with stage(**setup.settings(), log_level="warning") as (app, roles):
        await watch(app, roles, seen, options)


async def watch(app: App, roles: Roles, seen: Seen, options: argparse.Namespace) -> None:
    certificate = make_certificate(roles.config.folder) if options.tls else None
    gateway = await open_control(roles, certificate=certificate)
    other = await open_control(roles, duties="gateway")
    tokens = await make_keys(app)
    before = await warm_up(gateway, roles, tokens)
    folder = roles.config.folder / "all"
    listeners = await listening(gateway, roles, folder, options.streams, tokens)
    await asyncio.sleep(SETTLE_SECONDS)
    seen.idle.add(await gateway.at_rest(SETTLE_SECONDS) * 100)
    _, token = await app.keys.create("submitter", {PROJECT: Role.DEVELOPER}, by="bench")
    submitted: dict[str, set[int]] = {}
    for origin, through in zip(ORIGINS, (gateway, other), strict=True):
        spent, began = gateway.cpu, time.monotonic()
        submitted[origin] = await submit(through, token, options.rate, options.seconds)
        await asyncio.sleep(1)
        deliveries = len(submitted[origin]) * options.streams
        load = seen.loads.setdefault(origin, Load())
        load.deliveries.add(deliveries / (time.monotonic() - began))
        load.cpu.add((gateway.cpu - spent) / deliveries * 1e6)
    seen.kilobytes.add((gateway.memory - before) * 1024 / options.streams)
    count(seen, submitted, await asyncio.to_thread(stop, listeners, folder), options.streams)
    complaints = roles.complaints()
    seen.errors += Counter({"loud lines": len(complaints)})
    seen.complaints += complaints[:3]


async def make_keys(app: App) -> list[str]:
    grants = [{EVERYWHERE: Role.VIEWER}, {PROJECT: Role.VIEWER}]
    return [(await app.keys.create(f"listener {n}", grants[n % 2], by="bench"))[1] for n in range(KEYS)]


async def warm_up(gateway: Control, roles: Roles, tokens: Sequence[str]) -> float:
    """Open a few streams, so that the gateway has loaded all that it needs for one; return its memory without them."""
    folder = roles.config.folder / "few"
    await asyncio.to_thread(stop, await listening(gateway, roles, folder, len(tokens), tokens), folder)
    await asyncio.sleep(SETTLE_SECONDS)
    return gateway.memory


async def listening(gateway: Control, roles: Roles, folder: Path, streams: int, tokens: Sequence[str]) -> Process:
    await asyncio.to_thread(folder.mkdir)
    arguments = [str(gateway.port), str(gateway.certificate or ""), str(streams), str(folder), *tokens]
    process = roles.python("bench.listeners", *arguments)

    async def is_open() -> bool:
        return await asyncio.to_thread((folder / "open").exists)

    await until(f"{streams} streams have begun", is_open)
    return process


def stop(listeners: Process, folder: Path) -> Heard:
    end(listeners)
    return msgspec.json.decode((folder / "heard").read_bytes(), type=Heard)


async def submit(gateway: Control, token: str, rate: float, seconds: float) -> set[int]:
    """Submit runs through a gateway; each is an event. Nobody works on them."""
    headers = {"Authorization": f"Bearer {token}"}
    loop, gaps = asyncio.get_running_loop(), poisson(rate)
    connector = aiohttp.TCPConnector(ssl=gateway.tls) if gateway.tls else None
    submitted: set[int] = set()
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session, asyncio.TaskGroup() as group:

        async def one() -> None:
            async with session.post(f"{gateway.address}/v1/runs", json=RUN) as answer:
                answer.raise_for_status()
                submitted.add((await answer.json())["run_id"])

        due = loop.time()
        last = due + seconds
        while (due := due + next(gaps)) < last:
            await asyncio.sleep(max(0.0, due - loop.time()))
            group.create_task(one())
    return submitted


def count(seen: Seen, submitted: dict[str, set[int]], heard: Heard, streams: int) -> None:
    """Take in what was heard: each stream must have heard of each run, and of none twice."""
    seen.errors += Counter({"streams cut": heard.cut, "streams missing": streams - len(heard.streams)})
    wanted = set().union(*submitted.values())
    late: dict[str, list[float]] = {origin: [] for origin in submitted}
    for stream in heard.streams:
        runs = Counter(run_id for run_id, _ in stream)
        seen.errors += Counter({"missed": len(wanted - runs.keys()), "twice": runs.total() - len(runs)})
        for run_id, milliseconds in stream:
            for origin, its in submitted.items():
                if run_id in its:
                    late[origin].append(milliseconds)
    for origin, values in late.items():
        latencies, load = Latencies(values), seen.loads[origin]
        load.p50.add(latencies.p50)
        load.p99.add(latencies.p99)
        load.longest.add(latencies.longest)


def brief(seen: Seen) -> str:
    loads = [f"p99 {load.p99.values[-1]:.0f} ms through {origin}" for origin, load in seen.loads.items()]
    return ", ".join([f"{seen.kilobytes.values[-1]:.0f} KB each", *loads, f"{seen.errors.total()} errors"])


def report(found: dict[str, Seen], streams: int) -> str:
    rows = [
        [
            f"{name}, {origin}",
            f"{seen.kilobytes.median:.1f}",
            f"{seen.idle.median:.1f}",
            f"{load.deliveries.median:,.0f}",
            f"{load.p50.median:.1f}",
            f"{load.p99.median:.1f}",
            f"{max(load.p99.values):.0f}",
            f"{max(load.longest.values):.0f}",
            f"{load.cpu.median:.0f}",
        ]
        for name, seen in found.items()
        for origin, load in seen.loads.items()
    ]
    head = [f"{streams:,} streams, events through", "KB each", "idle CPU %", "deliveries/s", "p50 ms", "p99"]
    head += ["worst p99", "longest", "CPU µs each"]
    lines = [f"{name}: {what}: {n}" for name, seen in found.items() for what, n in seen.errors.items() if n]
    lines += [f"{name} said: {line}" for name, seen in found.items() for line in seen.complaints]
    return "\n" + "\n".join([table(head, rows), *lines]) + "\n"


def goals(found: dict[str, Seen], streams: int) -> list[Goal]:
    asked: list[Goal] = []
    for name, seen in found.items():
        what = f"{name}, {streams:,} streams"
        asked.append(Goal(what=f"{what}, memory of each", value=seen.kilobytes.median, at_most=KILOBYTES, unit=" KB"))
        asked.append(Goal(what=f"{what}, errors", value=seen.errors.total(), at_most=0))
        asked += [
            Goal(what=f"{what}, p99 from {origin}", value=load.p99.median, at_most=P99_MS, unit=" ms")
            for origin, load in seen.loads.items()
        ]
    return asked
