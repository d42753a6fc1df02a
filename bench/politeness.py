"""Politeness at full speed: many hosts with a delay of one second, judged by what their server has seen.

The ideal is one request a second to each host from the first to the last. How close a crawl comes to it, and the
shortest gap between two requests to one host, are taken from the server's log.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.crawl import submit, watch
from bench.latencies import machine_load
from bench.measure import Goal, judge, table
from bench.site import Site
from bench.spider_hosts import weft_up

Log = dict[str, list[float]]
"""When requests came, by host."""


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="weft-polite-") as folder:
        log = crawled(options, Path(folder) / "log")
    gaps = [after - before for times in log.values() for before, after in pairwise(times)]
    most = max(map(len, log.values()))
    took = max(map(max, log.values())) - min(map(min, log.values()))
    ideal = (most - 1) * options.delay
    short = sum(gap < options.delay for gap in gaps)
    figures = [f"{ideal:.1f}", f"{took:.1f}", f"{ideal / took:.3f}", f"{min(gaps):.4f}", short]
    head = [f"{options.hosts} hosts, {len(gaps) + len(log)} requests", "ideal s", "took s", "share", "shortest gap s"]
    print("\n" + table([*head, f"gaps < {options.delay:g} s"], [["weft", *figures]]) + "\n")
    print(machine_load())
    return judge(
        [
            Goal(what="share of the ideal rate", value=ideal / took, at_least=0.95),
            Goal(what=f"gaps shorter than {options.delay:g} s", value=short, at_most=0),
        ]
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench politeness", description=__doc__)
    parser.add_argument("--hosts", type=int, default=50, help="how many (50)")
    parser.add_argument("--pages", type=int, default=30, help="of each host (30)")
    parser.add_argument("--delay", type=float, default=1.0, help="seconds between two requests to a host (1)")
    parser.add_argument("--latency", type=float, nargs=2, default=(0.02, 0.4), metavar=("LEAST", "MOST"))
    parser.add_argument("--workers", type=int, default=1, help="how many crawl (1)")
    return parser.parse_args(arguments)


def crawled(options: argparse.Namespace, path: Path) -> Log:
    """What the server of a site has seen of a whole crawl."""
    pages = options.pages * options.hosts
    command = [sys.executable, "-m", "bench.site", "--pages", str(pages), "--hosts", str(options.hosts)]
    latency = ["--latency", *map(str, options.latency), "--log", str(path)]
    with subprocess.Popen([*command, *latency], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            site = Site(pages=pages, hosts=options.hosts, port=int(server.stdout.readline()))
            with weft_up(options.workers, crawl_contact="bench@weft.example", capacity=1) as weft:
                watch(weft, submit(weft, spec(site, options)))
        finally:
            server.terminate()
    log: Log = {}
    for line in path.read_text().splitlines():
        at, host, _ = line.split(" ", 2)
        log.setdefault(host, []).append(float(at))
    return log


def spec(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "urls": site.seeds(),
        "follow": True,
        "spread": options.workers,
        "politeness": {"delay_seconds": options.delay},
        "fetching": {"at_once": 100},
        "keeping": {"warc": False},
    }
