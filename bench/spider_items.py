"""Items: a spider that yields as fast as it can, all of them stored by weft, beside plain `scrapy crawl -o`."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.latencies import machine_load
from bench.measure import Figures, Goal, judge, table
from bench.peers.peer import PeerFailed
from bench.postbox import Postbox
from bench.spider_hosts import Runs, Weft, weft_up
from bench.spider_project import write_folder

ITEMS = 200_000
AT_LEAST = 0.9
SCRAPY = "scrapy crawl -o"
WEFT = "weft, all stored"


@dataclass(slots=True)
class Result:
    """What one way came to, from several runs."""

    yielded: Figures = field(default_factory=Figures)
    """Items a second until the spider was closed."""
    kept: Figures = field(default_factory=Figures)
    """Items a second until all of them were where they belong."""

    def add(self, count: int, opened: int, closed: int, kept: int) -> None:
        self.yielded.add(count / (closed - opened) * 1e9)
        self.kept.add(count / (kept - opened) * 1e9)


Results = dict[str, Result]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    results: Results = {SCRAPY: Result(), WEFT: Result()}
    with ExitStack() as stack:
        postbox = stack.enter_context(Postbox())
        weft = stack.enter_context(weft_up())
        runs = Runs(weft, postbox)
        runs.warm_up()
        for run in range(options.runs):
            crawl_plainly(postbox, -run - 1, options.items, results[SCRAPY])
            crawl_by_weft(runs, weft, options.items, results[WEFT])
            print(f"run {run + 1}: {', '.join(f'{name} {each.kept}' for name, each in results.items())}", flush=True)
    print(report(results, options.items))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench spider_items", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--items", type=int, default=ITEMS, help=f"how many items the spider yields ({ITEMS})")
    return parser.parse_args(arguments)


def crawl_plainly(postbox: Postbox, number: int, count: int, result: Result) -> None:
    """From the opened spider to the end of its process, which has written the file by then."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        folder = Path(directory)
        write_folder(folder)
        args = {"count": str(count), "number": str(number), "port": str(postbox.port)}
        command = [sys.executable, "-m", "scrapy", "crawl", "many", "-o", "out.jl"]
        command += [word for name, value in args.items() for word in ("-a", f"{name}={value}")]
        with (folder / "output").open("wb") as output:
            code = subprocess.call(command, cwd=folder, stdout=output, stderr=output)
        ended = time.monotonic_ns()
        with (folder / "out.jl").open("rb") as lines:
            found = sum(1 for _ in lines)
        if code or found != count:
            raise PeerFailed("scrapy crawl", f"wrote {found} of {count} items", (folder / "output").read_text())
    [opened], [closed] = (postbox.wait(SCRAPY, what, [number]).values() for what in ("opened", "closed"))
    result.add(count, opened, closed, ended)


def crawl_by_weft(runs: Runs, weft: Weft, count: int, result: Result) -> None:
    """From the opened spider to the end of its run, which comes after the last item was stored."""
    number, _ = runs.submit("many", count=str(count))
    [opened], [closed] = runs.opened(number).values(), runs.closed(number).values()
    runs.all_ended(number)
    ended = time.monotonic_ns()
    found = stored(weft)
    if found != count:
        raise PeerFailed("weft", f"stored {found} of {count} items", "\n".join(weft.roles.complaints()))
    result.add(count, opened, closed, ended)


def stored(weft: Weft) -> int:
    """How many items the newest run has in the database, as counted there."""
    [newest] = weft.line.ask("GET", "/v1/runs?limit=1")[1]["items"]
    return weft.items_of(int(newest["id"]))


def report(results: Mapping[str, Result], items: int) -> str:
    head = [f"{items:,} small items", "yielded/s", "kept/s"]
    return "\n" + table(head, [[name, each.yielded, each.kept] for name, each in results.items()]) + "\n"


def goals(results: Mapping[str, Result]) -> list[Goal]:
    ratio = results[WEFT].kept.median / results[SCRAPY].kept.median
    return [Goal(what=f"items a second, beside {SCRAPY}", value=ratio, at_least=AT_LEAST, unit="×")]
