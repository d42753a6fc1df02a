"""Tasks a second that one client hands over one by one, weft beside its peers. No goal: it is for comparison."""

import argparse
from collections.abc import Sequence

from bench.measure import Figures, table
from bench.peers.python import install
from bench.peers.table import peers
from bench.servers import Servers
from bench.throughput import chosen, positive, stop, weft


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench submit", description=__doc__)
    parser.add_argument("--runs", type=positive, default=5, help="how often each is measured (5)")
    parser.add_argument("--tasks", type=positive, default=5_000, help="how many tasks are handed over (5000)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="only those with one of these in the name"
    )
    options = parser.parse_args(arguments)
    install()
    with Servers() as servers:
        contenders = [each for each in [*weft(servers), *peers(servers)] if chosen(each, options.only)]
        if not contenders:
            return stop(f"no contender has {' or '.join(options.only)} in its name")
        results = {each.name: Figures() for each in contenders}
        for _ in range(options.runs):
            for each in contenders:
                results[each.name].add(each.submit(options.tasks))
    print(table(["submits a second, one client", "one by one"], list(results.items())))
    return 0
