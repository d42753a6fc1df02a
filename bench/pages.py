"""Pages: how soon the first byte of each comes with a long history and with a short one, and how large each is."""

import argparse
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from bench.latencies import Latencies, machine_load
from bench.measure import Goal, judge, table
from bench.page_ballast import DATASET, PROJECT, TASK
from bench.page_hosts import Fetched, Reader, opened
from bench.peers.scrapyd import SPIDER
from bench.peers.scrapydweb import Listed, listed
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults
from weft.web.site import PAGES

FIRST_BYTE_MS, TIMES_SHORT, FIRST_LOAD_KB, PAGE_KB = 150.0, 1.5, 300.0, 30.0
SHORT = 1_000
WARM_UP, BESIDE_TIMES = 3, 5
LEFT_OUT = ("/login", "/logout", "/look", "/guest/")
"""Pages that nobody sees who is logged in, and one whose address is a secret of its own."""
GIVEN = {"project": PROJECT, "spider": SPIDER, "task": TASK, "version": "1", "dataset": DATASET}
ENDED, YIELDED = "20", "1"
"""A run that has ended, and the one whose items fill the history."""
NAMES = {"/tasks/": TASK, "/datasets/": DATASET}
"""What ``{name}`` stands for, by how the address begins."""
ASSET = re.compile(rb'(?:href|src)="(/static/[^"#]+)')


@dataclass(slots=True)
class Seen:
    """One page on one database."""

    short: list[Fetched] = field(default_factory=list)
    long: list[Fetched] = field(default_factory=list)

    @property
    def times(self) -> float:
        return p95(self.long) / p95(self.short)


Found = dict[tuple[str, str], Seen]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    found: Found = {}
    with Servers() as servers:
        for setup in chosen(defaults(servers), options.only):
            measure(setup, found, options)
    beside = [listed(jobs, BESIDE_TIMES) for jobs in options.beside]
    print(report(found))
    print(compared(found, beside))
    print(machine_load())
    return judge(goals(found))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench pages", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs of the long history (1000000)")
    parser.add_argument("--items", type=int, default=10_000_000, help="items of the long history (10000000)")
    parser.add_argument("--times", type=int, default=40, help="how often each page is opened (40)")
    parser.add_argument(
        "--beside", type=int, nargs="*", default=[1_000, 10_000], help="finished jobs of ScrapydWeb (1000 10000)"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only databases with these words")
    return parser.parse_args(arguments)


def measure(setup: Setup, found: Found, options: argparse.Namespace) -> None:
    sizes = {"short": (SHORT, SHORT), "long": (options.runs, options.items)}
    for history, (runs, items) in sizes.items():
        with opened(setup, runs=runs, items=items) as host, closing(Reader(host.port)) as reader:
            print(f"{host.name}: {runs} runs, {items} items", flush=True)
            for page in addresses():
                seen = found.setdefault((host.name, page), Seen())
                fetched = [reader.get(page) for _ in range(WARM_UP + options.times)][WARM_UP:]
                getattr(seen, history).extend(fetched)
            if history == "long":
                found[host.name, FIRST_LOAD] = Seen(long=[first_load(reader)])


FIRST_LOAD = "the first page with all that it loads"


def first_load(reader: Reader) -> Fetched:
    """What a browser that was never here takes."""
    page = reader.get("/")
    parts = [reader.get(address.decode()) for address in sorted(set(ASSET.findall(page.content)))]
    return Fetched(page.status, page.milliseconds, page.size + sum(each.size for each in parts), b"")


def addresses() -> list[str]:
    """An address of every page that can be opened."""
    shown = [path for path, methods in PAGES.items() if "GET" in methods and not path.startswith(LEFT_OUT)]
    made = [made_of(path) for path in shown]
    return [each for each in made if "{" not in each]


def made_of(path: str) -> str:
    name = next((given for start, given in NAMES.items() if path.startswith(start)), "{name}")
    given = {**GIVEN, "name": name, "run_id": YIELDED if "/items" in path else ENDED}
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: given.get(found[1], found[0]), path)


def p95(fetched: Sequence[Fetched]) -> float:
    return Latencies(each.milliseconds for each in fetched).percentile(95)


def report(found: Found) -> str:
    head = ["page", "status", "short p95 ms", "long p95 ms", "times", "kB"]
    rows = []
    for (host, page), seen in found.items():
        if page == FIRST_LOAD:
            rows.append([f"{host}: {page}", "", "", "", "", f"{seen.long[0].size / 1000:.1f}"])
            continue
        figures = [f"{p95(seen.short):.1f}", f"{p95(seen.long):.1f}", f"{seen.times:.2f}"]
        rows.append([f"{host}: {page}", str(seen.long[0].status), *figures, f"{largest(seen) / 1000:.1f}"])
    return table(head, rows)


def compared(found: Found, beside: Sequence[Listed]) -> str:
    """The list of runs, and ScrapydWeb's list of jobs on the histories that it is given."""
    rows = [[f"ScrapydWeb, {each.jobs} finished jobs", f"{each.milliseconds:.0f}"] for each in beside]
    for (host, page), seen in found.items():
        if page == "/runs":
            half = Latencies(each.milliseconds for each in seen.long).p50
            rows.append([f"{host}, the long history", f"{half:.0f}"])
    return table(["list of runs", "median ms"], rows)


def largest(seen: Seen) -> int:
    return max(each.size for each in seen.long)


def goals(found: Found) -> list[Goal]:
    made = []
    for (host, page), seen in found.items():
        what = f"{host}, {page}"
        if page == FIRST_LOAD:
            made.append(Goal(what=what, value=largest(seen) / 1000, at_most=FIRST_LOAD_KB, unit=" kB"))
            continue
        made.append(Goal(what=f"{what}, first byte p95", value=p95(seen.long), at_most=FIRST_BYTE_MS, unit=" ms"))
        made.append(Goal(what=f"{what}, times the short history", value=seen.times, at_most=TIMES_SHORT))
        made.append(Goal(what=f"{what}, compressed", value=largest(seen) / 1000, at_most=PAGE_KB, unit=" kB"))
    return made
