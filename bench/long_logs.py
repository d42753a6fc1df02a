"""Long logs: how soon pages of a log of 1 GB come, wherever in it they are, and what memory they take."""

import argparse
import asyncio
import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench.gateway import QUIET
from bench.latencies import Latencies, machine_load
from bench.measure import Goal, judge, table
from bench.page_ballast import PASSWORD, USER
from bench.page_hosts import Host, Reader, answers
from bench.roles import Roles, place
from bench.waiting import until
from tests.runs.acting import Hand, submit
from tests.servers.server import free_port
from weft.access.model import EVERYWHERE, Role
from weft.app import App, open_app
from weft.config import Config
from weft.logs.storage import store_log
from weft.workers.remote.wire import log_key

BYTES = 1 << 30
FIRST_BYTE_MS, GROWN_MB = 1000.0, 32.0
AT = 1_794_790_923_000_000
PEAK_FROM_NOW = "5"
AT_ONCE = 5_000
"""Records that are written together."""
TRACEBACK = "Traceback (most recent call last):\n  …\nKeyError: 'price'"
ERRORS = (1_000, 2_000_000)
"""The lines that are errors; a shorter log has the first alone."""
PAGES = {
    "the end": "/runs/{run}/log",
    "the beginning": "/runs/{run}/log?after=0",
    "a line in the midst": "/runs/{run}/log?attempt=1&line={midst}",
    "the last error": "/runs/{run}/log?jump=previous&line={lines}",
    "the error before it": "/runs/{run}/log?jump=previous&line=1999999",
    "errors in groups": "/runs/{run}/log/errors?all=1",
    "lines of a level": "/runs/{run}/log?level=INFO",
}
SEARCHED = "a text that is nowhere, 256 MB of it"
SEARCH = "/runs/{run}/log?text=nowhere"


@dataclass(slots=True)
class Opened:
    """What a page took: milliseconds to its first byte, kilobytes, and by how much the gateway has grown at most."""

    milliseconds: list[float] = field(default_factory=list)
    kilobytes: float = 0.0
    grown: float = 0.0


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    found: dict[str, Opened] = {}
    with hosted(options.bytes) as (host, lines), closing(Reader(host.port)) as reader:
        given = {"run": 1, "lines": lines + 1, "midst": lines // 2}
        before = warm(reader, host.pid)
        for name, page in {**PAGES, SEARCHED: SEARCH}.items():
            opened = found.setdefault(name, Opened())
            for _ in range(options.times):
                fetched = reader.get(page.format(**given))
                opened.milliseconds.append(fetched.milliseconds)
                opened.kilobytes = fetched.size / 1000
            opened.grown = resident(host.pid, "VmHWM") - before
    print(report(found))
    print(machine_load())
    return judge(goals(found))


def warm(reader: Reader, pid: int) -> float:
    """Load what pages are made of; what the process has then, in megabytes. Its peak counts from there."""
    for page in ("/runs", "/runs/1"):
        reader.get(page)
    Path(f"/proc/{pid}/clear_refs").write_text(PEAK_FROM_NOW)
    return resident(pid, "VmRSS")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench long_logs", description=__doc__)
    parser.add_argument("--bytes", type=int, default=BYTES, help=f"how long the log is ({BYTES})")
    parser.add_argument("--times", type=int, default=20, help="how often each page is opened (20)")
    return parser.parse_args(arguments)


@contextmanager
def hosted(size: int) -> Iterator[tuple[Host, int]]:
    """A gateway with one run, and how many lines that has logged."""
    with place(**QUIET, requests_per_second=0) as config:
        lines = asyncio.run(filled(config, size))
        port = free_port()
        with Roles(config) as roles:
            process = roles.weft("serve", "--process-roles", "gateway", "--port", str(port))
            asyncio.run(until("the gateway answers", lambda: answers(port)))
            yield Host("weft on SQLite", port, process.pid, config), lines


async def filled(config: Config, size: int) -> int:
    app = await open_app(config)
    try:
        await app.users.create(USER, PASSWORD, {EVERYWHERE: Role.ADMIN})
        with (config.folder / "long.log").open("w+b") as file:
            lines = await asyncio.to_thread(write, file, size)
            await ended(app, file.fileno())
        return lines
    finally:
        await app.close()


async def ended(app: App, descriptor: int) -> None:
    """A run that has ended with such a log."""
    run_id, hand = await submit(app), await Hand.join(app)
    lease, size = await hand.lease_one(), os.fstat(descriptor).st_size
    print(f"a log of {size:,} bytes", flush=True)
    await store_log(app.blobs, log_key(run_id, 1), size, lambda start, length: os.pread(descriptor, length, start))
    await hand.end(lease, log_key=log_key(run_id, 1), log_bytes=size)


def write(file: IO[bytes], size: int) -> int:
    """Write records as a spider's agent does; how many they are."""
    made, written, chance = 0, 0, random.Random(1)
    while written < size:
        written += file.write(b"".join([record(made + number, chance) for number in range(1, AT_ONCE + 1)]))
        made += AT_ONCE
    file.flush()
    return made


def record(number: int, chance: random.Random) -> bytes:
    page, referer = chance.randrange(10**9), chance.randrange(10**6)
    said = {
        "at": AT + 500 * number,
        "level": "INFO" if number % 20 == 0 else "DEBUG",
        "logger": "scrapy.core.engine",
        "message": f"Crawled (200) <GET https://shop.example/{page}?page={number}> (referer: https://shop.example/{referer})",
        "url": f"https://shop.example/products/{number}",
        "status": 200,
        "spider": "books",
    }
    if number in ERRORS:
        said |= {"level": "ERROR", "message": f"failed on page {number}", "exception": TRACEBACK}
    return b"\x1e%b\n" % json.dumps(said, separators=(",", ":")).encode()


def resident(pid: int, name: str) -> float:
    """Megabytes that a process has, or has had at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has ended")


def report(found: dict[str, Opened]) -> str:
    rows = []
    for name, opened in found.items():
        spread = Latencies(opened.milliseconds)
        times = (f"{spread.p50:.0f}", f"{spread.percentile(95):.0f}")
        rows.append([name, *times, f"{opened.kilobytes:.1f}", f"{opened.grown:.0f}"])
    return table(["page", "p50 ms", "p95 ms", "kB", "MB grown so far"], rows)


def goals(found: dict[str, Opened]) -> list[Goal]:
    soon = [
        Goal(
            what=f"{name}: first byte, p95",
            value=Latencies(found[name].milliseconds).percentile(95),
            at_most=FIRST_BYTE_MS,
            unit=" ms",
        )
        for name in PAGES
    ]
    grown = max(each.grown for each in found.values())
    return [*soon, Goal(what="memory of the gateway: grown", value=grown, at_most=GROWN_MB, unit=" MB")]
