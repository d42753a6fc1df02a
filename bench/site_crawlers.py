"""Crawlers of one site, measured one after the other: each is asked for every page, and all have the same machine.

The site has one core and a crawler the other; a crawler of several processes has both, and then what the site's server
took of them does not count.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.latencies import machine_load
from bench.measure import Figures, Goal, cpu_seconds, family, judge, pss_megabytes, table
from bench.nginx_site import NginxSite, nginx_site
from bench.peers import python
from bench.peers.peer import PeerFailed
from bench.spider_hosts import Weft
from tests import servers

CRAWLERS = Path(__file__).parent / "crawlers"
LONGEST_SECONDS = 1_800.0
SITES_CORE, CRAWLERS_CORE = 1, 0


@dataclass(slots=True)
class Result:
    """What one crawler came to, from several runs."""

    wall: Figures = field(default_factory=Figures)
    """Pages a second."""
    cpu: Figures = field(default_factory=Figures)
    """Microseconds of processor time a page, of all that it is made of."""
    memory: Figures = field(default_factory=Figures)
    """Megabytes, at most."""

    def add(self, pages: int, told: Mapping[str, float]) -> None:
        self.wall.add(pages / told["seconds"])
        self.cpu.add(told["cpu"] / pages * 1e6)
        self.memory.add(told["memory_mb"])


Results = dict[str, Result]
Told = dict[str, float]
Crawlers = dict[str, Callable[[], Told]]
Contenders = Callable[[NginxSite, ExitStack, argparse.Namespace], Crawlers]
Goals = Callable[[Results], list[Goal]]


def options(name: str, about: str | None, pages: int, separator: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"bench {name}", description=about)
    parser.add_argument("--runs", type=int, default=3, help="how often each crawls (3)")
    parser.add_argument("--pages", type=int, default=pages, help=f"pages of the site ({pages})")
    parser.add_argument("--hosts", type=int, default=50, help="hosts of the site (50)")
    parser.add_argument("--only", default="", help=f"names of crawlers, separated by {separator}")
    parser.add_argument("--database", default="", help="the database of weft; empty: SQLite")
    parser.add_argument("--frontier", default="", help="the frontier of weft; empty: the database")
    parser.set_defaults(separator=separator)
    return parser


def compare(options: argparse.Namespace, contenders: Contenders, goals: Goals) -> int:
    """Let everybody crawl the site as often as is wanted, in turns, and judge; the exit code of a benchmark."""
    results: Results = {}
    python.install()
    with ExitStack() as stack:
        with on_core(SITES_CORE):
            site = stack.enter_context(nginx_site(options.pages, options.hosts))
        crawlers = wanted(contenders(site, stack, options), options)
        for run in range(options.runs):
            for name, crawl in crawlers.items():
                told = crawl()
                if told["pages"] != options.pages:
                    raise PeerFailed(name, f"brought {told['pages']:.0f} of {options.pages} pages", "")
                results.setdefault(name, Result()).add(options.pages, told)
                print(f"run {run + 1}: {name} {told}", flush=True)
    print(report(results, options.pages))
    print(machine_load())
    return judge(goals(results))


def wanted(crawlers: Crawlers, options: argparse.Namespace) -> Crawlers:
    names = {name.strip() for name in options.only.split(options.separator) if name.strip()}
    return {name: crawl for name, crawl in crawlers.items() if not names or name in names}


def faster(results: Results, one: str, other: str) -> float:
    return results[one].wall.median / results[other].wall.median


def redis(stack: ExitStack) -> str:
    return stack.enter_context(servers.redis()).url


def peer(script: str, *arguments: str) -> Told:
    return process([python.program("python"), str(CRAWLERS / script), *arguments])


def process(command: Sequence[str]) -> Told:
    """What a crawler that is one process says of itself."""
    with on_core(CRAWLERS_CORE):
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    if done.returncode:
        raise PeerFailed(command[1], f"ended with {done.returncode}", done.stderr)
    told: Told = json.loads(done.stdout.splitlines()[-1])
    return told


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started meanwhile has one core for itself, where there are several."""
    before = os.sched_getaffinity(0)
    if len(before) > 1:
        os.sched_setaffinity(0, {sorted(before)[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def server_seconds(site: NginxSite) -> float:
    return sum(cpu_seconds(pid) for pid in family(site.pid))


def memory(pid: int) -> float:
    try:
        return pss_megabytes(pid)
    except OSError:
        return 0.0


def spent(weft: Weft) -> float:
    return sum(cpu_seconds(pid) for pid in family(weft.pid))


def report(results: Mapping[str, Result], pages: int) -> str:
    rows = [[name, each.wall, each.cpu, each.memory] for name, each in results.items()]
    return "\n" + table([f"{pages:,} pages", "pages/s", "CPU µs/page", "MB"], rows) + "\n"
