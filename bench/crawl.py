"""A whole site: weft beside Scrapy, scrapy-redis, Crawlee and the least that a crawl can cost, on one site in one run.

Everybody crawls every page once and keeps title and links of each: weft in its datasets, the others as JSON lines.
weft keeps its frontier in the database, obeys robots.txt and waits where it should (the delay of these hosts is 0).
The site has one core and the crawler the other; two workers of weft have both, and then what the site's server took of
them does not count.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.latencies import machine_load
from bench.measure import Figures, Goal, cpu_seconds, family, judge, pss_megabytes, table
from bench.nginx_site import NginxSite, nginx_site
from bench.peers import python
from bench.peers.peer import PeerFailed
from bench.spider_hosts import Weft, weft_up
from tests import servers

CRAWLERS = Path(__file__).parent / "crawlers"
PROTOTYPE, SCRAPY, SCRAPY_REDIS, CRAWLEE = "prototype", "Scrapy", "scrapy-redis", "Crawlee"
WEFT, WEFT_WARC, WEFT_TWO = "weft", "weft with WARC", "weft with two workers"
LONGEST_SECONDS = 1_800.0
LOOK_SECONDS = 1.0
"""Each look costs weft something."""
SITES_CORE, CRAWLERS_CORE = 1, 0


@dataclass(slots=True)
class Result:
    """What one crawler came to, from several runs."""

    wall: Figures = field(default_factory=Figures)
    """Pages a second."""
    cpu: Figures = field(default_factory=Figures)
    """Milliseconds of processor time a page, of all that it is made of."""
    memory: Figures = field(default_factory=Figures)
    """Megabytes, at most."""

    def add(self, pages: int, told: Mapping[str, float]) -> None:
        self.wall.add(pages / told["seconds"])
        self.cpu.add(told["cpu"] / pages * 1e6)
        self.memory.add(told["memory_mb"])


Results = dict[str, Result]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    results: Results = {}
    python.install()
    with ExitStack() as stack:
        with on_core(SITES_CORE):
            site = stack.enter_context(nginx_site(options.pages, options.hosts))
        crawlers = contenders(site, stack, options)
        for run in range(options.runs):
            for name, crawl in crawlers.items():
                told = crawl()
                if told["pages"] != options.pages:
                    raise PeerFailed(name, f"brought {told['pages']} of {options.pages} pages", "")
                results.setdefault(name, Result()).add(options.pages, told)
                print(f"run {run + 1}: {name} {told}", flush=True)
    print(report(results, options.pages))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench crawl", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often each crawls (3)")
    parser.add_argument("--pages", type=int, default=20_000, help="pages of the site (20000)")
    parser.add_argument("--hosts", type=int, default=50, help="hosts of the site (50)")
    parser.add_argument("--only", default="", help="names of crawlers, separated by commas")
    parser.add_argument("--database", default="", help="the database of weft; empty: SQLite")
    parser.add_argument("--frontier", default="", help="the frontier of weft; empty: the database")
    return parser.parse_args(arguments)


Told = dict[str, float]
Crawlers = dict[str, Callable[[], Told]]


def contenders(site: NginxSite, stack: ExitStack, options: argparse.Namespace) -> Crawlers:
    """Everybody who crawls, by name."""
    feed = str(site.log.with_name("feed.jl"))
    all_of_them: Crawlers = {
        PROTOTYPE: lambda: process([sys.executable, str(CRAWLERS / "prototype.py"), *site.seeds]),
        SCRAPY: lambda: peer("scrapy_spider.py", feed, *site.seeds),
        CRAWLEE: lambda: peer("crawlee_spider.py", feed, *site.seeds),
        SCRAPY_REDIS: lambda: peer("scrapy_redis_spider.py", redis(stack), feed, *site.seeds),
        WEFT: lambda: weft_crawls(site, options, workers=1, warc=False),
        WEFT_WARC: lambda: weft_crawls(site, options, workers=1, warc=True),
        WEFT_TWO: lambda: weft_crawls(site, options, workers=2, warc=False),
    }
    wanted = {name.strip() for name in options.only.split(",") if name.strip()}
    return {name: crawl for name, crawl in all_of_them.items() if not wanted or name in wanted}


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


def weft_crawls(site: NginxSite, options: argparse.Namespace, *, workers: int, warc: bool) -> Told:
    """A crawl by `weft up`: one run for each worker, all of its processes counted."""
    places = {name: getattr(options, name) for name in ("database", "frontier") if getattr(options, name)}
    settings = {"crawl_contact": "bench@weft.example", "allowed_networks": "127.0.0.0/8", "capacity": 1}
    with ExitStack() as stack:
        if workers == 1:
            stack.enter_context(on_core(CRAWLERS_CORE))
        weft = stack.enter_context(weft_up(workers, **settings, **places))
        before, of_site = spent(weft), server_seconds(site)
        crawl_id = submit(weft, spec(site, warc, workers))
        peak = watch(weft, crawl_id)
        used, crawl = spent(weft) - before, ask(weft, f"/v1/crawls/{crawl_id}")["crawl"]
        seconds = (moment(crawl["ended_at"]) - moment(crawl["created_at"])).total_seconds()
        if workers > 1:
            seconds -= (server_seconds(site) - of_site) / workers
        return {"pages": crawl["counts"]["done"], "seconds": seconds, "cpu": used, "memory_mb": peak}


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


moment = datetime.fromisoformat


def spec(site: NginxSite, warc: bool, spread: int) -> dict[str, Any]:
    return {
        "urls": site.seeds,
        "follow": True,
        "spread": spread,
        "politeness": {"delay_seconds": 0, "adaptive": False},
        "fetching": {"at_once": 50},
        "keeping": {"warc": warc, "links": True},
    }


def submit(weft: Weft, wanted: Mapping[str, Any]) -> int:
    body = json.dumps({"project": "bench", "name": "site", "spec": wanted})
    status, said = weft.line.ask("POST", "/v1/crawls", body)
    if status not in (201, 202):
        raise PeerFailed("weft", f"answered {status}: {said}", "")
    return int(said["id"])


def ask(weft: Weft, path: str) -> Any:
    status, said = weft.line.ask("GET", path)
    if status != 200:
        raise PeerFailed("weft", f"answered {status}: {said}", "\n".join(weft.roles.complaints()))
    return said


def watch(weft: Weft, crawl_id: int) -> float:
    """Wait for the end of a crawl; the most memory that its crawling processes had."""
    peak, until = 0.0, time.monotonic() + LONGEST_SECONDS
    while ask(weft, f"/v1/crawls/{crawl_id}")["crawl"]["state"] == "active":
        if time.monotonic() > until:
            raise PeerFailed("weft", "did not end", "\n".join(weft.roles.complaints()))
        peak = max([peak, *(memory(pid) for pid in family(weft.pid) if crawls(pid))])
        time.sleep(LOOK_SECONDS)
    while weft.unfinished():
        time.sleep(LOOK_SECONDS)
    return peak


def crawls(pid: int) -> bool:
    try:
        return b"weft.crawls" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


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


def goals(results: Results) -> list[Goal]:
    """What is asked of weft, beside whoever was measured."""

    def faster(one: str, other: str) -> float:
        return results[one].wall.median / results[other].wall.median

    def thriftier(one: str, other: str) -> float:
        return results[other].cpu.median / results[one].cpu.median

    asked = [
        (WEFT, SCRAPY, 10.0),
        (WEFT, CRAWLEE, 5.0),
        (WEFT_WARC, SCRAPY, 7.0),
        (WEFT, PROTOTYPE, 0.45),
    ]
    found = [
        Goal(what=f"{one}: {what}, beside {other}", value=ratio(one, other), at_least=least, unit="×")
        for one, other, least in asked
        if one in results and other in results
        for what, ratio in (("pages a second", faster), ("pages a CPU second", thriftier))
    ]
    if WEFT in results and WEFT_TWO in results:
        found.append(Goal(what="two workers beside one", value=faster(WEFT_TWO, WEFT), at_least=1.7, unit="×"))
    if WEFT in results:
        found.append(
            Goal(what="memory of a crawling process", value=max(results[WEFT].memory.values), at_most=150, unit=" MB")
        )
    return found
