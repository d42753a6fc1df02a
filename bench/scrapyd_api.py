"""Scrapyd's API, beside Scrapyd: jobs scheduled a second, answers while a slow project is deployed, a long list."""

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from bench.latencies import Latencies, machine_load
from bench.load import Load, ask
from bench.measure import Figures, Goal, judge, table
from bench.peers.python import install
from bench.peers.scrapyd import EGG, packed
from bench.scrapyd_hosts import SCRAPYD, Host, Line, Opening, said_of, scrapyd, weft
from bench.servers import Servers
from bench.setups import defaults
from bench.throughput import positive, stop

TIMES_SCRAPYD, STATUS_P99_MS, LIST_SECONDS = 10.0, 50.0, 1.0
EVERY_SECONDS = 0.02
"""How often somebody asks for the status while a project is deployed."""
SLOW = EGG | {"noops/settings.py": "import time\n\ntime.sleep({seconds})\n" + EGG["noops/settings.py"]}
PARTS = ("schedule", "deploy", "list")


@dataclass(slots=True)
class Result:
    """What one host came to, from several runs."""

    rate: Figures = field(default_factory=Figures)
    """Jobs accepted a second."""
    cpu_ms: Figures = field(default_factory=Figures)
    """Processor time of the process that answers, for each of them."""
    p99: Figures = field(default_factory=Figures)
    """Milliseconds to a status while a project is deployed."""
    deploy_seconds: Figures = field(default_factory=Figures)
    list_seconds: Figures = field(default_factory=Figures)
    errors: list[str] = field(default_factory=list)


Results = dict[str, Result]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        hosts: dict[str, Opening] = {f"weft on {each.database_name}": weft(each) for each in defaults(servers)}
        hosts = {name: opening for name, opening in {**hosts, SCRAPYD: scrapyd}.items() if chosen(name, options.only)}
        if not hosts:
            return stop(f"no host has {' or '.join(options.only)} in its name")
        if SCRAPYD in hosts:
            install()
        results = measure(hosts, options)
    print(report(results))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench scrapyd_api", description=__doc__)
    parser.add_argument("--runs", type=positive, default=5, help="how often each is measured (5)")
    parser.add_argument("--calls", type=positive, default=1_000, help="how many jobs are scheduled (1000)")
    parser.add_argument("--clients", type=positive, default=64, help="how many schedule at once (64)")
    parser.add_argument("--import-seconds", type=float, default=5.0, help="what importing the slow project takes (5)")
    parser.add_argument("--finished", type=positive, default=100_000, help="how many finished jobs are listed (100000)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only hosts with one of these words")
    return parser.parse_args(arguments)


def chosen(name: str, words: Sequence[str]) -> bool:
    return not words or any(word.lower() in name.lower() for word in words)


def measure(hosts: Mapping[str, Opening], options: argparse.Namespace) -> Results:
    """Each host in turn, again and again, so that a slow minute of the machine falls on each."""
    results = {name: Result() for name in hosts}
    for run in range(options.runs):
        for name, opening in hosts.items():
            on_new_host(opening, results[name], options)
            print(f"run {run + 1}: {name}: {latest(results[name])}; {machine_load()}", flush=True)
    if "list" in options.parts:
        for name, opening in hosts.items():
            with opening(options.finished) as host:
                listing(host, results[name], options.finished, options.runs)
            print(f"{name}: {latest(results[name])}; {machine_load()}", flush=True)
    return results


def on_new_host(opening: Opening, result: Result, options: argparse.Namespace) -> None:
    with opening(0) as host:
        if "schedule" in options.parts:
            schedule(host, result, options.clients, options.calls)
        if "deploy" in options.parts:
            deploy(host, result, options.import_seconds)


def schedule(host: Host, result: Result, clients: int, calls: int) -> None:
    """So many jobs, one a call, each client again as soon as it has its answer. None of them is started."""
    before, cpu = host.kept(), host.cpu()
    load = Load(
        port=host.port, requests=[host.schedule()], clients=clients, calls=calls, seconds=600.0, warm_seconds=0.0
    )
    answers = ask(load)
    result.rate.add(answers.rate)
    result.cpu_ms.add((host.cpu() - cpu) * 1000 / calls)
    result.errors += [f"{count} times {what}" for what, count in answers.others.items()]
    if (kept := host.kept() - before) != answers.expected:
        result.errors.append(f"{answers.expected} jobs were accepted and {kept} kept")


def deploy(host: Host, result: Result, seconds: float) -> None:
    """Deploy a project whose settings take so long to import, and ask for the status all the while."""
    egg = packed({name: text.format(seconds=seconds) for name, text in SLOW.items()})
    with closing(host.line()) as line, closing(host.line()) as watching, ThreadPoolExecutor(1) as threads:
        watching.get("/daemonstatus.json")
        uploading = threads.submit(upload, line, egg)
        took = ask_until(uploading.done, watching.get)
    result.deploy_seconds.add(uploading.result())
    result.p99.add(took.p99)


def upload(line: Line, egg: bytes) -> float:
    """How many seconds it took."""
    began = time.monotonic()
    line.deploy("slow", "1", egg)
    return time.monotonic() - began


def ask_until(done: Callable[[], bool], get: Callable[[str], bytes]) -> Latencies:
    """How long each answer took from the moment at which it should have been asked for, every so often.

    Who waits for an answer cannot ask, but somebody else would have: what was due meanwhile has waited as well.
    """
    took: list[float] = []
    due, end = time.monotonic(), math.inf
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        get("/daemonstatus.json")
        took.append((time.monotonic() - due) * 1000)
        due += EVERY_SECONDS
        end = min(end, time.monotonic()) if done() else end
    return Latencies(took)


def listing(host: Host, result: Result, finished: int, runs: int) -> None:
    """All jobs, from the question to the last byte of the answer."""
    with closing(host.line()) as line:
        for _ in range(runs):
            began = time.monotonic()
            body = line.get("/listjobs.json")
            result.list_seconds.add(time.monotonic() - began)
            if (found := len(said_of(body)["finished"])) != finished:
                result.errors.append(f"{found} of {finished} finished jobs were listed")


def latest(result: Result) -> str:
    shown = {
        "jobs/s": result.rate,
        "CPU ms": result.cpu_ms,
        "p99 ms": result.p99,
        "deploy s": result.deploy_seconds,
        "list s": result.list_seconds,
    }
    return ", ".join(f"{name} {figures.values[-1]:,.4g}" for name, figures in shown.items() if figures.values)


def report(results: Results) -> str:
    peer = results.get(SCRAPYD)
    head = ["Scrapyd's API", "schedules/s", "× Scrapyd", "CPU ms each", "status p99 ms", "deploy s", "list s"]
    rows = [
        [
            name,
            result.rate if result.rate.values else "",
            f"{times(result, peer):.2f}" if peer and result.rate.values else "",
            *(short(figures) for figures in (result.cpu_ms, result.p99, result.deploy_seconds, result.list_seconds)),
        ]
        for name, result in results.items()
    ]
    errors = [f"{name}: {error}" for name, result in results.items() for error in result.errors]
    return "\n" + "\n".join([table(head, rows), *errors]) + "\n"


def short(figures: Figures) -> str:
    if not figures.values:
        return ""
    return f"{brief(figures.median)} ({brief(min(figures.values))}–{brief(max(figures.values))})"


def brief(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(result: Result, peer: Result) -> float:
    return result.rate.median / peer.rate.median


def goals(results: Results) -> list[Goal]:
    peer, found = results.get(SCRAPYD), []
    for name, result in results.items():
        found.append(Goal(what=f"{name}, errors", value=len(result.errors), at_most=0))
        if name == SCRAPYD:
            continue  # it stands beside weft; the goals are weft's
        if peer and result.rate.values:
            found.append(
                Goal(what=f"{name}, schedules", value=times(result, peer), at_least=TIMES_SCRAPYD, unit="× Scrapyd")
            )
        if result.p99.values:
            value = result.p99.median
            found.append(Goal(what=f"{name}, status p99", value=value, at_most=STATUS_P99_MS, unit=" ms"))
        if result.list_seconds.values:
            value = result.list_seconds.median
            found.append(Goal(what=f"{name}, list", value=value, at_most=LIST_SECONDS, unit=" s"))
    return found
