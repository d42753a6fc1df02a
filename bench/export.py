"""Export: a million items in each format, and whether that takes more memory than a tenth of them."""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.item_ballast import fill
from bench.latencies import machine_load
from bench.measure import Figures, Goal, judge, table
from bench.peers.peer import PeerFailed
from bench.roles import place
from weft.app import open_app
from weft.cli.up import environment
from weft.config import Config, Loaded
from weft.items.exporters import ExportFormat

ITEMS = 1_000_000
SMALLER = 10
"""How many times fewer the other dataset has."""
GROWTH_MB = 32.0
"""How much the process of an export may grow, whatever the number of its items."""
DIFFERENCE_MB = 8.0
"""How much more the large export may take than the small one: what the allocator does not give back at once."""
PATIENCE_SECONDS = 1800.0


@dataclass(slots=True)
class Result:
    """What an export came to, from several runs."""

    rate: Figures = field(default_factory=Figures)
    """Items a second."""
    megabytes: Figures = field(default_factory=Figures)
    """Of the file."""
    grown: Figures = field(default_factory=Figures)
    """Megabytes by which the process grew at most."""


Results = dict[tuple[ExportFormat, int], Result]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    results: Results = {}
    for items in (max(options.items // SMALLER, 1), options.items):
        with place() as config:
            asyncio.run(filled(config, items))
            for run in range(options.runs):
                for format in options.formats:
                    measure(config, items, results.setdefault((format, items), Result()), format)
                    print(
                        f"run {run + 1}: {items:,} items, {format}: {results[format, items].rate} a second", flush=True
                    )
    print(report(results))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench export", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--items", type=int, default=ITEMS, help=f"how many the large dataset has ({ITEMS})")
    parser.add_argument(
        "--formats",
        nargs="+",
        type=ExportFormat,
        default=list(ExportFormat),
        metavar="FORMAT",
        help="only these formats",
    )
    return parser.parse_args(arguments)


async def filled(config: Config, items: int) -> None:
    app = await open_app(config)
    try:
        await asyncio.to_thread(fill, app, items)
    finally:
        await app.close()


def measure(config: Config, items: int, result: Result, format: ExportFormat) -> None:
    """One export, in a process of its own."""
    process = subprocess.run(
        [sys.executable, "-m", "bench.exporter", format],
        env=environment(Loaded(config, ())),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    if process.returncode:
        raise PeerFailed("weft", f"did not export {items} items as {format}", process.stderr)
    said = json.loads(process.stdout)
    result.rate.add(items / said["seconds"])
    result.megabytes.add(said["bytes"] / 1e6)
    result.grown.add(said["grown_mb"])


def report(results: Mapping[tuple[ExportFormat, int], Result]) -> str:
    head = ["format", "items", "items/s", "MB of file", "MB grown"]
    rows = [
        [str(format), f"{items:,}", result.rate, result.megabytes, f"{result.grown.median:.1f}"]
        for (format, items), result in sorted(results.items(), key=lambda each: list(ExportFormat).index(each[0][0]))
    ]
    return "\n" + table(head, rows) + "\n"


def goals(results: Mapping[tuple[ExportFormat, int], Result]) -> list[Goal]:
    found: list[Goal] = []
    for format in dict.fromkeys(format for format, _ in results):
        small, large = (results[key].grown.median for key in sorted(key for key in results if key[0] is format))
        found.append(Goal(what=f"{format}: growth", value=large, at_most=GROWTH_MB, unit=" MB"))
        more = large - small
        found.append(
            Goal(what=f"{format}: growth with ten times as many", value=more, at_most=DIFFERENCE_MB, unit=" MB")
        )
    return found
