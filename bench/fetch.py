"""What one fetch costs over a kept connection: weft's way out beside aiohttp and beside the bare parser.

A page of 40 kB, compressed, from nginx on this machine. The bare parser is the limit: one request that never changes,
no deadline, no limits, no address that is checked.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from bench.fetchers import FETCHERS
from bench.latencies import machine_load
from bench.measure import Figures, Goal, judge, table
from bench.nginx_site import nginx_site


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    costs = {name: Figures() for name in FETCHERS}
    with nginx_site(pages=1, hosts=1) as served:
        url = f"{served.seeds[0]}start"
        for _ in range(options.runs):
            for name in FETCHERS:
                costs[name].add(measured(name, url, options.count))
    bare = costs["bare parser"].median
    rows = [[name, f"{each.median:.3f}", f"{each.median / bare:.2f}"] for name, each in costs.items()]
    print("\n" + table(["one page over a kept connection", "CPU ms", "of the bare parser"], rows) + "\n")
    print(machine_load())
    return judge([Goal(what="weft beside the bare parser", value=costs["weft"].median / bare, at_most=1.6)])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench fetch", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each, in turn (5)")
    parser.add_argument("--count", type=int, default=8_000, help="pages in a run (8000)")
    return parser.parse_args(arguments)


def measured(name: str, url: str, count: int) -> float:
    command = [sys.executable, "-m", "bench.fetchers", name, url, str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
