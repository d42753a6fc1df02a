"""The API: runs accepted a second, one by one and in batches, and lists read a second, by 64 clients of one gateway.

Scrapyd's schedule.json is asked in turn with it, by the same clients.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.doors import Door, Seen, Weft
from bench.latencies import machine_load
from bench.lists import SORTS, library
from bench.measure import Figures, Goal, judge, table
from bench.peers.python import install
from bench.peers.scrapyd import Scrapyd
from bench.servers import Servers
from bench.setups import defaults
from bench.throughput import positive, stop

SUBMIT, BATCH, LIST = "submit", "batch", "list"
LOADS = (SUBMIT, BATCH, LIST)
LEAST = {SUBMIT: 1_500, BATCH: 10_000, LIST: 1_500}
"""Runs, or lists, a second."""
P99_MS = {SUBMIT: 100.0, LIST: 60.0}
RUNS = 10_000_000
"""How many runs the lists are of."""


@dataclass(slots=True)
class Result:
    """One load on one door, from several runs."""

    rate: Figures = field(default_factory=Figures)
    p50: Figures = field(default_factory=Figures)
    p99: Figures = field(default_factory=Figures)
    longest: Figures = field(default_factory=Figures)
    took: list[Figures] = field(default_factory=lambda: [Figures(), Figures(), Figures()])
    """Milliseconds of processor time for each run or list: of the gateway, the database server and the clients."""
    sorts: dict[str, Figures] = field(default_factory=dict)
    """The 99th percentile of each sort of request in a mixed load."""
    errors: list[str] = field(default_factory=list)

    def add(self, seen: Seen) -> None:
        took = seen.answers.latencies
        self.rate.add(seen.rate)
        self.p50.add(took.p50)
        self.p99.add(took.p99)
        self.longest.add(took.longest)
        for figures, milliseconds in zip(self.took, seen.each_took, strict=True):
            figures.add(milliseconds)
        for sort in dict.fromkeys(seen.sorts):
            self.sorts.setdefault(sort, Figures()).add(seen.of_sort(sort).p99)
        self.errors += seen.errors


Results = dict[tuple[str, str], Result]
Loads = Mapping[str, Mapping[str, Callable[[float], Seen]]]
"""For each load, how each door is put under it for so many seconds."""


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        ours = [each for each in map(Weft, defaults(servers)) if chosen(each, options.only)]
        theirs = [each for each in [Scrapyd()] if chosen(each, options.only) and SUBMIT in options.loads]
        if not ours and not theirs:
            return stop(f"no door has {' or '.join(options.only)} in its name")
        if theirs:
            install()
        results = measure(ours, theirs, options)
    print(report(results))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench api", description=__doc__)
    parser.add_argument("--runs", type=positive, default=5, help="how often each is measured (5)")
    parser.add_argument("--seconds", type=float, default=5, help="how long each load lasts (5)")
    parser.add_argument("--clients", type=positive, default=64, help="how many ask at once (64)")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=LOADS, help="only these")
    parser.add_argument("--sorts", nargs="+", choices=SORTS, default=SORTS, help="only these sorts of lists")
    parser.add_argument("--scale", type=float, default=1, help="the part of 10,000,000 runs that lists are of (1)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where SQLite's 10,000,000 runs stay for next time")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="only those with one of these in the name"
    )
    return parser.parse_args(arguments)


def chosen(door: Door, words: Sequence[str]) -> bool:
    return not words or any(word.lower() in door.name.lower() for word in words)


def measure(ours: Sequence[Weft], theirs: Sequence[Door], options: argparse.Namespace) -> Results:
    """Every load on every door in turn, again and again, so that a slow minute of the machine falls on each."""
    results: Results = {}
    with ExitStack() as stack:
        libraries = [
            stack.enter_context(library(each.setup, int(RUNS * options.scale), options.keep))
            for each in ours
            if LIST in options.loads
        ]
        loads: Loads = {
            SUBMIT: {each.name: partial(each.submit, options.clients) for each in (*ours, *theirs)},
            BATCH: {each.name: each.batch for each in ours},
            LIST: {each.name: partial(each.read, options.clients, options.sorts) for each in libraries},
        }
        for run in range(options.runs):
            for load in options.loads:
                for name, put_on in loads[load].items():
                    seen = put_on(options.seconds)
                    results.setdefault((load, name), Result()).add(seen)
                    print(f"run {run + 1}: {load}, {name}: {seen.rate:,.0f}/s", flush=True)
    return results


def report(results: Results) -> str:
    peer = results.get((SUBMIT, Scrapyd().name))
    head = [
        "load",
        "a second",
        "× Scrapyd",
        "p50 ms",
        "p99 ms",
        "worst p99",
        "longest",
        "CPU ms each",
        "database",
        "clients",
    ]
    rows = [
        [
            f"{load}, {name}",
            result.rate,
            f"{result.rate.median / peer.rate.median:.2f}" if peer and load == SUBMIT else "",
            f"{result.p50.median:.1f}",
            f"{result.p99.median:.1f}",
            f"{max(result.p99.values):.1f}",
            f"{max(result.longest.values):.0f}",
            *(f"{figures.median:.2f}" for figures in result.took),
        ]
        for (load, name), result in results.items()
    ]
    lines = [
        f"{load}, {name}, {sort}: p99 {figures.median:.1f} ms"
        for (load, name), result in results.items()
        for sort, figures in result.sorts.items()
    ]
    lines += [f"{load}, {name}: {error}" for (load, name), result in results.items() for error in result.errors]
    return "\n" + "\n".join([table(head, rows), "", *lines]) + "\n"


def goals(results: Results) -> list[Goal]:
    asked: list[Goal] = []
    for (load, name), result in results.items():
        what = f"{load}, {name}"
        asked.append(Goal(what=f"{what}, errors", value=len(result.errors), at_most=0))
        if name == Scrapyd().name:
            continue  # it stands beside weft; the goals are weft's
        asked.append(Goal(what=f"{what}, a second", value=result.rate.median, at_least=LEAST[load]))
        if load in P99_MS:
            asked.append(Goal(what=f"{what}, p99", value=result.p99.median, at_most=P99_MS[load], unit=" ms"))
    return asked
