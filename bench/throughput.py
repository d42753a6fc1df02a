"""No-op tasks a second, weft beside its peers: a backlog is worked off by one and by two worker processes.

All are measured in turn, again and again, so that a slow minute of the machine falls on each of them. The figure is the
median; the goals are on the ratios, which hold on any machine better than the figures do.
"""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from itertools import product

from bench.contender import Contender
from bench.measure import Figures, Goal, judge, table
from bench.peers.python import install
from bench.peers.table import peers
from bench.servers import Servers

RUNS_A_SECOND = 10_000
TIMES_BEST_PEER = 1.5
TIMES_CELERY = 4
TUNED = "batches of 200"
"""Shown beside the others; the goal was set by the peers as they come."""
PROCESSES = (1, 2)
FIRST_TASKS = 2_000
MOST_TASKS = 200_000

Results = dict[tuple[str, int], Figures]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        ours = [each for each in weft(servers) if chosen(each, options.only)]
        theirs: list[Contender] = [each for each in peers(servers) if chosen(each, options.only)]
        if not ours and not theirs:
            return stop(f"no contender has {' or '.join(options.only)} in its name")
        if theirs:
            install()
        results = measure([*ours, *theirs], options.runs, options.seconds)
    print(report(results, ours, theirs))
    return judge(goals(results, ours, theirs))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench throughput", description=__doc__)
    parser.add_argument("--runs", type=positive, default=5, help="how often each is measured (5)")
    parser.add_argument("--seconds", type=float, default=4, help="how long a backlog should last (4)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="only those with one of these in the name"
    )
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be a whole number above 0")
    return int(text)


def stop(sentence: str) -> int:
    print(f"bench: {sentence}", file=sys.stderr)
    return 2


def chosen(contender: Contender, words: Sequence[str]) -> bool:
    return not words or any(word.lower() in contender.name.lower() for word in words)


def weft(servers: Servers) -> list[Contender]:
    """weft on each database, from ``bench.noop.contenders(servers)``, where that is there."""
    if importlib.util.find_spec("bench.noop") is None:
        print("weft itself is not measured: there is no bench/noop.py")
        return []
    found: list[Contender] = importlib.import_module("bench.noop").contenders(servers)
    return found


def measure(contenders: Sequence[Contender], runs: int, seconds: float) -> Results:
    results: Results = {(each.name, processes): Figures() for each, processes in product(contenders, PROCESSES)}
    sizes = {each.name: backlog(each, seconds) for each in contenders}
    for run, processes, each in product(range(runs), PROCESSES, contenders):
        rate = each.drain(processes, sizes[each.name])
        results[each.name, processes].add(rate)
        print(f"run {run + 1}: {each.name}, {workers(processes)}: {rate:,.0f}/s", flush=True)
    return results


def backlog(contender: Contender, seconds: float) -> int:
    """As many tasks as last for about so long. This also wakes the contender and its server up."""
    return int(min(max(contender.drain(max(PROCESSES), FIRST_TASKS) * seconds, FIRST_TASKS), MOST_TASKS))


def report(results: Results, ours: Sequence[Contender], theirs: Sequence[Contender]) -> str:
    best = fastest(results, theirs, 2)
    head = ["no-op tasks a second", *map(workers, PROCESSES), "× best peer (2)"]
    rows = [
        [
            each.name,
            *(results[each.name, processes] for processes in PROCESSES),
            f"{results[each.name, 2].median / best:.2f}" if best else "",
        ]
        for each in [*ours, *theirs]
    ]
    return f"\n{table(head, rows)}\n"


def workers(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


def fastest(results: Results, contenders: Sequence[Contender], processes: int) -> float:
    return max((results[each.name, processes].median for each in contenders), default=0.0)


def goals(results: Results, ours: Sequence[Contender], theirs: Sequence[Contender]) -> list[Goal]:
    celery = [each for each in theirs if each.name.startswith("Celery")]
    usual = [each for each in theirs if not each.name.endswith(TUNED)]
    found: list[Goal] = []
    for each in ours:
        rate = results[each.name, 2].median
        found.append(Goal(what=f"{each.name}, runs a second", value=rate, at_least=RUNS_A_SECOND))
        for what, least, rivals in (("best peer", TIMES_BEST_PEER, usual), ("Celery", TIMES_CELERY, celery)):
            if rivals:
                times = rate / fastest(results, rivals, 2)
                found.append(Goal(what=f"{each.name} beside {what}", value=times, at_least=least, unit="×"))
    return found
