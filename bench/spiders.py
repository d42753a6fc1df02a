"""Spiders: how soon one is opened after its submit, and what a hundred of them take, beside Scrapyd."""

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from bench.latencies import Latencies, machine_load
from bench.measure import Figures, Goal, judge, table
from bench.peers.python import install
from bench.peers.scrapyd_spiders import TUNED, scrapyd
from bench.postbox import Postbox
from bench.spider_hosts import Opening, Runs, weft_up
from bench.spider_project import LARGE, PROJECT

P50_MS, P95_MS, LARGE_P50_MS = 50.0, 100.0, 80.0
GAP_SECONDS = {"weft": 0.3, "Scrapyd tuned": 0.3, "Scrapyd": 5.0}
"""The longest pause between a run's end and the next submit: at least as long as the host's own rhythm."""
MOST_LARGE = 5
"""How many spiders of the large project a slow host starts, which is shown and has no goal."""
SETTLE_SECONDS = 1.0
HOLD_SECONDS = 120


@dataclass(slots=True)
class Result:
    """What one host came to, from several runs."""

    p50: Figures = field(default_factory=Figures)
    """Milliseconds from a submit to the opened spider, while nothing else runs."""
    p95: Figures = field(default_factory=Figures)
    large_p50: Figures = field(default_factory=Figures)
    """The same for a spider of a project of 62 modules and 20 spiders."""
    seconds: Figures = field(default_factory=Figures)
    """From the first submit of many to the last ending."""
    cpu_ms: Figures = field(default_factory=Figures)
    """Processor time of all of the host's processes for each of them."""
    megabytes: Figures = field(default_factory=Figures)
    """Proportional memory of all processes that are there for spiders, for each run under way."""


Results = dict[str, Result]
PARTS = ("opened", "many", "held")
"""One by one, as with both projects; many at once; and the memory of open ones."""
HOSTS: dict[str, Opening] = {
    "weft": weft_up,
    "Scrapyd tuned": scrapyd("Scrapyd tuned", TUNED),
    "Scrapyd": scrapyd("Scrapyd", {}),
}


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    names = [name for name in HOSTS if not options.only or any(word.lower() in name.lower() for word in options.only)]
    if any(name != "weft" for name in names):
        install()
    results: Results = {name: Result() for name in names}
    for run in range(options.runs):
        for name, result in results.items():
            measure(HOSTS[name], result, options, GAP_SECONDS[name])
            print(f"run {run + 1}: {name}: {latest(result)}; {machine_load()}", flush=True)
    print(report(results, options.many))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench spiders", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--samples", type=int, default=40, help="how many spiders are started one by one (40)")
    parser.add_argument("--slow", type=int, default=10, help="the same for Scrapyd, which takes longer (10)")
    parser.add_argument("--many", type=int, default=100, help="how many are submitted at once (100)")
    parser.add_argument("--held", type=int, default=8, help="how many are open while memory is measured (8)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only hosts with one of these words")
    return parser.parse_args(arguments)


def measure(opening: Opening, result: Result, options: argparse.Namespace, gap: float) -> None:
    """All of it on one newly started host, and the large project on another."""
    with Postbox() as postbox, opening() as host:
        runs = Runs(host, postbox)
        runs.warm_up()
        samples = options.samples if host.name == "weft" else options.slow
        if "opened" in options.parts:
            seen = one_by_one(runs, samples, gap)
            result.p50.add(seen.p50)
            result.p95.add(seen.percentile(95))
        if "many" in options.parts:
            seconds, cpu = at_once(runs, options.many)
            result.seconds.add(seconds)
            result.cpu_ms.add(cpu * 1000 / options.many)
        if "held" in options.parts:
            result.megabytes.add(held(runs, options.held))
    if "opened" not in options.parts:
        return
    with Postbox() as postbox, opening(project=LARGE) as host:
        runs = Runs(host, postbox)
        runs.warm_up("shop7", LARGE)
        samples = samples if host.name == "weft" else min(samples, MOST_LARGE)
        result.large_p50.add(one_by_one(runs, samples, gap, "shop7", LARGE).p50)


def one_by_one(runs: Runs, samples: int, gap: float, spider: str = "noop", project: str = PROJECT) -> Latencies:
    """Each is submitted some time after the one before has ended, at no particular moment of anybody's rhythm."""
    took = []
    for _ in range(samples):
        number, submitted = runs.submit(spider, project)
        took.append((runs.opened(number)[number] - submitted) / 1e6)
        runs.all_ended(number)
        time.sleep(random.uniform(gap / 10, gap))
    return Latencies(took)


def at_once(runs: Runs, many: int) -> tuple[float, float]:
    """Seconds until so many have ended, and the processor seconds that they took."""
    cpu, began = runs.cpu(), time.monotonic()
    numbers = [runs.submit("noop")[0] for _ in range(many)]
    runs.all_ended(*numbers)
    return time.monotonic() - began, runs.cpu() - cpu


def held(runs: Runs, many: int, seconds: float = HOLD_SECONDS) -> float:
    """Megabytes for each of so many spiders that are open at the same time; they end with their host."""
    numbers = [runs.submit("hold", seconds=str(seconds))[0] for _ in range(many)]
    runs.opened(*numbers)
    time.sleep(SETTLE_SECONDS)
    return runs.spider_megabytes() / many


def latest(result: Result) -> str:
    measured = {each.name: getattr(result, each.name).values for each in fields(result)}
    return ", ".join(f"{name} {values[-1]:,.4g}" for name, values in measured.items() if values)


def report(results: Mapping[str, Result], many: int) -> str:
    """The figures, and how many times as much each takes as weft."""
    columns = {
        "opened p50 ms": "p50",
        "p95 ms": "p95",
        "62 modules p50 ms": "large_p50",
        f"{many} runs s": "seconds",
        "CPU ms a run": "cpu_ms",
        "PSS MB a run": "megabytes",
    }
    measured = {
        head: part for head, part in columns.items() if any(getattr(each, part).values for each in results.values())
    }
    weft = results.get("weft")
    heads = [each for head in measured for each in ((head, "× weft") if weft is not None else (head,))]
    rows = [
        [name, *(cell for part in measured.values() for cell in cells(result, weft, part))]
        for name, result in results.items()
    ]
    return "\n" + table(["spiders", *heads], rows) + "\n"


def cells(result: Result, weft: Result | None, part: str) -> list[str]:
    """The median of one part, and how many times weft's it is."""
    shown = f"{getattr(result, part).median:,.{2 if part == 'seconds' else 1}f}"
    return [shown] if weft is None else [shown, f"{times(weft, result, part):.1f}"]


def times(weft: Result, other: Result, part: str) -> float:
    """How many times as much the other one takes."""
    return float(getattr(other, part).median / getattr(weft, part).median)


def goals(results: Mapping[str, Result]) -> list[Goal]:
    """Of what was measured."""
    if (weft := results.get("weft")) is None:
        return []
    found = [
        Goal(what=what, value=getattr(weft, part).median, at_most=most, unit=" ms")
        for what, part, most in (
            ("submit to opened, p50", "p50", P50_MS),
            ("submit to opened, p95", "p95", P95_MS),
            ("the same of 62 modules, p50", "large_p50", LARGE_P50_MS),
        )
        if getattr(weft, part).values
    ]
    for name, sooner, faster in (("Scrapyd tuned", 13, 12), ("Scrapyd", 55, 20)):
        if (other := results.get(name)) is not None:
            found += beside(weft, other, name, sooner=sooner, faster=faster)
    return found


def beside(weft: Result, other: Result, name: str, *, sooner: float, faster: float) -> list[Goal]:
    wanted = (
        ("opens so many times later", "p50", sooner),
        ("many runs take so many times as long", "seconds", faster),
        ("CPU of a run, so many times weft's", "cpu_ms", 8),
        ("memory of a run, so many times weft's", "megabytes", 2),
    )
    return [
        Goal(what=f"{name}: {what}", value=times(weft, other, part), at_least=least, unit="×")
        for what, part, least in wanted
        if getattr(weft, part).values
    ]
