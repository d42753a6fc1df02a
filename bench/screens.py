"""200 open live pages on one gateway: what they take of a core, and how soon a change is seen on them."""

import argparse
import asyncio
import gzip
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field

import aiohttp

from bench.latencies import Latencies, machine_load
from bench.measure import Figures, Goal, cpu_seconds, judge, table
from bench.page_ballast import PASSWORD, PROJECT
from bench.page_hosts import Host, Reader, opened
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults
from weft.access.model import EVERYWHERE, Role
from weft.app import App, open_app
from weft.runs.model import NewRun, RunSpec

CORE_PERCENT, VISIBLE_SECONDS = 10.0, 1.0
READERS = 20
"""How many people have the pages open, each of them in a session of their own."""
LIST = "/runs"
OPEN = ("/", LIST, "/runs?state=failed", "/workers", "/tasks", "/projects")
SETTLE_SECONDS = 4.0
PATIENCE_SECONDS = 30.0


@dataclass(slots=True)
class Seen:
    idle: Figures = field(default_factory=Figures)
    """Per cent of a core while nothing happens."""
    busy: Figures = field(default_factory=Figures)
    """The same while runs come in."""
    visible: list[float] = field(default_factory=list)
    """Milliseconds from the commit of a run to the page of each reader of the list."""


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    found: dict[str, Seen] = {}
    with Servers() as servers:
        for run in range(options.runs):
            for setup in chosen(defaults(servers), options.only):
                seen = found.setdefault(f"weft on {setup.database_name}", Seen())
                measure(setup, seen, options)
                print(f"run {run + 1}: {setup.name}: {seen.idle}% idle, {seen.busy}% busy", flush=True)
    print(report(found))
    print(machine_load())
    return judge(goals(found))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench screens", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--pages", type=int, default=200, help="how many pages are open (200)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long runs come in (20)")
    parser.add_argument("--rate", type=float, default=0.5, help="runs a second (0.5)")
    parser.add_argument("--history", type=int, default=10_000, help="runs that are there already (10000)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only databases with these words")
    return parser.parse_args(arguments)


def measure(setup: Setup, seen: Seen, options: argparse.Namespace) -> None:
    with opened(setup, runs=options.history, items=1_000) as host:
        asyncio.run(watch(host, seen, options))


async def watch(host: Host, seen: Seen, options: argparse.Namespace) -> None:
    app = await open_app(host.config)
    try:
        async with AsyncExitStack() as held:
            screens = await open_screens(app, host, options.pages, held)
            await asyncio.sleep(SETTLE_SECONDS)
            seen.idle.add(await spent(host, SETTLE_SECONDS))
            submitting = asyncio.create_task(submit(app, options.rate, options.seconds))
            seen.busy.add(await spent(host, options.seconds))
            committed = await submitting
            await asyncio.sleep(VISIBLE_SECONDS * 2)
            for screen in screens:
                seen.visible.extend(screen.lateness(committed))
    finally:
        await app.close()


class Screen:
    """A page that is open, and all that came to it."""

    def __init__(self, line: aiohttp.ClientWebSocketResponse, page: str) -> None:
        self.line, self.page = line, page
        self.came: list[tuple[float, str]] = []
        self.first = asyncio.Event()
        self.listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        await self.line.send_json({"page": self.page})
        async for message in self.line:
            self.came.append((time.time(), json.loads(gzip.decompress(message.data))["main"]))
            self.first.set()

    def lateness(self, committed: dict[int, float]) -> list[float]:
        """For a list of runs: how long after its commit each run was on it; one that never was counts as for ever."""
        if self.page != LIST:
            return []
        return [(self._shown_at(run_id) - at) * 1000 for run_id, at in committed.items()]

    def _shown_at(self, run_id: int) -> float:
        return next((at for at, main in self.came if f'/runs/{run_id}"' in main), float("inf"))


async def open_screens(app: App, host: Host, count: int, held: AsyncExitStack) -> list[Screen]:
    cookies = []
    for number in range(READERS):
        await app.users.create(f"reader-{number}", PASSWORD, {EVERYWHERE: Role.OPERATOR})
        with closing(await asyncio.to_thread(Reader, host.port, f"reader-{number}")) as reader:
            cookies.append(reader.cookie)
    session = await held.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    address = f"http://127.0.0.1:{host.port}"
    screens = []
    for number in range(count):
        headers = {"Cookie": cookies[number % READERS], "Origin": address}
        line = await held.enter_async_context(session.ws_connect(f"{address}/live", headers=headers, max_msg_size=0))
        screens.append(Screen(line, OPEN[number % len(OPEN)]))
        held.callback(screens[-1].listening.cancel)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*[screen.first.wait() for screen in screens])
    return screens


async def spent(host: Host, seconds: float) -> float:
    """Per cent of a core that the gateway takes in the next seconds."""
    before, began = cpu_seconds(host.pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(host.pid) - before) / (time.monotonic() - began) * 100


async def submit(app: App, rate: float, seconds: float) -> dict[int, float]:
    """Runs that come in one by one, and when each was durable."""
    committed = {}
    until = time.monotonic() + seconds - VISIBLE_SECONDS
    while time.monotonic() < until:
        run = NewRun(project=PROJECT, task="noop", kind="noop", spec=RunSpec(spec={}))
        [submitted] = await app.runs.submit([run])
        committed[submitted.run_id] = time.time()
        await asyncio.sleep(1 / rate)
    return committed


def report(found: dict[str, Seen]) -> str:
    head = ["host", "idle % of a core", "busy %", "visible p50 ms", "p99 ms", "longest ms", "seen"]
    rows = []
    for name, seen in found.items():
        late = Latencies(seen.visible)
        times = [f"{late.p50:.0f}", f"{late.p99:.0f}", f"{late.longest:.0f}", str(len(late))]
        rows.append([name, f"{seen.idle.median:.1f}", f"{seen.busy.median:.1f}", *times])
    return table(head, rows)


def goals(found: dict[str, Seen]) -> list[Goal]:
    made = []
    for name, seen in found.items():
        late = Latencies(seen.visible)
        made.append(Goal(what=f"{name}, open pages", value=seen.busy.median, at_most=CORE_PERCENT, unit="% of a core"))
        made.append(
            Goal(what=f"{name}, change to visible, p99", value=late.p99 / 1000, at_most=VISIBLE_SECONDS, unit=" s")
        )
    return made
