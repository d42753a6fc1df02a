"""The API: runs accepted a second, one by one and in batches, and lists read a second, by 64 clients of one gateway."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.doors import Seen, Weft
from bench.latencies import machine_load
from bench.lists import Library, library
from bench.measure import Figures, Goal, judge, table
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults
from bench.throughput import positive

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
    server_cpu: Figures = field(default_factory=Figures)
    clients_cpu: Figures = field(default_factory=Figures)
    sorts: dict[str, Figures] = field(default_factory=dict)
    """The 99th percentile of each sort of request in a mixed load."""
    errors: list[str] = field(default_factory=list)

    def add(self, seen: Seen) -> None:
        took = seen.answers.latencies
        self.rate.add(seen.rate)
        self.p50.add(took.p50)
        self.p99.add(took.p99)
        self.longest.add(took.longest)
        self.server_cpu.add(seen.server_cpu)
        self.clients_cpu.add(seen.clients_cpu)
        for sort in dict.fromkeys(seen.sorts):
            self.sorts.setdefault(sort, Figures()).add(seen.of_sort(sort).p99)
        self.errors += seen.errors


Results = dict[tuple[str, str], Result]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        results = measure(chosen(defaults(servers), options.only), options)
    print(report(results))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench api", description=__doc__)
    parser.add_argument("--runs", type=positive, default=5, help="how often each is measured (5)")
    parser.add_argument("--seconds", type=float, default=5, help="how long each load lasts (5)")
    parser.add_argument("--clients", type=positive, default=64, help="how many ask at once (64)")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=LOADS, help="only these")
    parser.add_argument("--scale", type=float, default=1, help="the part of 10,000,000 runs that lists are of (1)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where SQLite's 10,000,000 runs stay for next time")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only set-ups with all of these words")
    return parser.parse_args(arguments)


def measure(setups: Sequence[Setup], options: argparse.Namespace) -> Results:
    """Every load on every door in turn, again and again, so that a slow minute of the machine falls on each."""
    results: Results = {}
    with ExitStack() as stack:
        libraries = [
            stack.enter_context(library(setup, int(RUNS * options.scale), options.keep))
            for setup in setups
            if LIST in options.loads
        ]
        for run in range(options.runs):
            for load, name, seen in once([Weft(setup) for setup in setups], libraries, options):
                results.setdefault((load, name), Result()).add(seen)
                print(f"run {run + 1}: {load}, {name}: {seen.rate:,.0f}/s", flush=True)
    return results


def once(
    doors: Sequence[Weft], libraries: Sequence[Library], options: argparse.Namespace
) -> Iterator[tuple[str, str, Seen]]:
    for door in doors if SUBMIT in options.loads else []:
        yield SUBMIT, door.name, door.submit(options.clients, options.seconds)
    for door in doors if BATCH in options.loads else []:
        yield BATCH, door.name, door.batch(options.seconds)
    for each in libraries:
        yield LIST, each.name, each.read(options.clients, options.seconds)


def report(results: Results) -> str:
    head = ["load", "a second", "p50 ms", "p99 ms", "worst p99", "longest", "cores: server", "clients"]
    rows = [
        [
            f"{load}, {name}",
            result.rate,
            f"{result.p50.median:.1f}",
            f"{result.p99.median:.1f}",
            f"{max(result.p99.values):.1f}",
            f"{max(result.longest.values):.0f}",
            f"{result.server_cpu.median:.2f}",
            f"{result.clients_cpu.median:.2f}",
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
        asked.append(Goal(what=f"{what}, a second", value=result.rate.median, at_least=LEAST[load]))
        if load in P99_MS:
            asked.append(Goal(what=f"{what}, p99", value=result.p99.median, at_most=P99_MS[load], unit=" ms"))
        asked.append(Goal(what=f"{what}, errors", value=len(result.errors), at_most=0))
    return asked
