"""One spider on weft's frontier: beside plain Scrapy and scrapy-redis, and in two runs beside one, on the same site.

The spider is the same everywhere (``crawlers/scrapy_spider.py``), and its settings are. In weft its requests come from
the frontier in the database and its items go to a dataset; the others keep theirs in memory or in Redis, and write
JSON lines.
"""

import argparse
import asyncio
import json
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.crawl import LONGEST_SECONDS, Crawlers, Result, Results, Told, memory, peer, redis, report, spent
from bench.crawlers.scrapy_spider import SETTINGS
from bench.latencies import machine_load
from bench.measure import Goal, family, judge
from bench.nginx_site import NginxSite, nginx_site
from bench.peers import python
from bench.peers.peer import PeerFailed
from bench.spider_hosts import Weft, weft_up
from weft.app import open_app
from weft.config import Config

SCRAPY, SCRAPY_REDIS = "Scrapy", "scrapy-redis"
BARE, WEFT, WEFT_TWO = "Scrapy in weft, no frontier", "FrontierScheduler", "FrontierScheduler, two runs"
PROJECT = "site"
SPIDER = Path(__file__).parent / "crawlers" / "scrapy_spider.py"
LOOK_SECONDS = 0.1


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    results: Results = {}
    python.install()
    with ExitStack() as stack:
        site = stack.enter_context(nginx_site(options.pages, options.hosts))
        crawlers = contenders(site, stack, options)
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


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench scrapy_frontier", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often each crawls (3)")
    parser.add_argument("--pages", type=int, default=4_000, help="pages of the site (4000)")
    parser.add_argument("--hosts", type=int, default=50, help="hosts of the site (50)")
    parser.add_argument("--only", default="", help="names of contenders, separated by semicolons")
    parser.add_argument("--database", default="", help="the database of weft; empty: SQLite")
    parser.add_argument("--frontier", default="", help="the frontier of weft; empty: the database")
    return parser.parse_args(arguments)


def contenders(site: NginxSite, stack: ExitStack, options: argparse.Namespace) -> Crawlers:
    """Everybody who crawls, by name."""
    feed = str(site.log.with_name("feed.jl"))
    queue = stack.enter_context(ExitStack())
    all_of_them: Crawlers = {
        SCRAPY: lambda: peer("scrapy_spider.py", feed, *site.seeds),
        SCRAPY_REDIS: lambda: peer("scrapy_redis_spider.py", redis(queue), feed, *site.seeds),
        BARE: lambda: weft_crawls(site, options, runs=1, frontier=False),
        WEFT: lambda: weft_crawls(site, options, runs=1),
        WEFT_TWO: lambda: weft_crawls(site, options, runs=2),
    }
    wanted = {name.strip() for name in options.only.split(";") if name.strip()}
    return {name: crawl for name, crawl in all_of_them.items() if not wanted or name in wanted}


def weft_crawls(site: NginxSite, options: argparse.Namespace, *, runs: int, frontier: bool = True) -> Told:
    """The spider in runs of `weft up`, from the moment when all of them have been handed over to the last one's end."""
    places = {name: getattr(options, name) for name in ("database", "frontier") if getattr(options, name)}
    with weft_up(1, capacity=runs, **places) as weft:
        asyncio.run(deployed(weft.roles.config))
        warm_up(weft)
        before, began = spent(weft), time.monotonic()
        run_ids = [submit(weft, site.seeds, frontier) for _ in range(runs)]
        peak = watch(weft)
        seconds, used = time.monotonic() - began, spent(weft) - before
        pages = sum(weft.items_of(run_id) for run_id in run_ids)
        return {"pages": pages, "seconds": seconds, "cpu": used, "memory_mb": peak}


async def deployed(config: Config) -> None:
    """Deploy the spider that the others run, with the settings that they give it."""
    egg = config.folder / "deploy" / "site.egg"
    settings = "\n".join(f"{name} = {value!r}" for name, value in SETTINGS.items())
    files = {
        "EGG-INFO/PKG-INFO": "Metadata-Version: 1.0\nName: site\nVersion: 1\n",
        "EGG-INFO/entry_points.txt": "[scrapy]\nsettings = site_project.settings\n",
        "site_project/__init__.py": "",
        "site_project/settings.py": f"SPIDER_MODULES = ['site_project.spiders']\n{settings}\n",
        "site_project/spiders/__init__.py": "",
        "site_project/spiders/site.py": SPIDER.read_text(),
    }
    with zipfile.ZipFile(egg, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    app = await open_app(config)
    try:
        await app.projects.deploy(PROJECT, egg, "1", by="bench")
    finally:
        await app.close()


def warm_up(weft: Weft) -> None:
    """Have the code imported: a run that finds nothing to do."""
    submit(weft, [], frontier=False)
    watch(weft)


def submit(weft: Weft, seeds: Sequence[str], frontier: bool) -> int:
    spec: dict[str, object] = {"spider": "site", "args": {"seeds": " ".join(seeds)}}
    spec |= {"frontier": True} if frontier else {}
    run = {"project": PROJECT, "kind": "spider", "name": "site", "spec": spec}
    status, said = weft.line.ask("POST", "/v1/runs", json.dumps(run))
    if status != 202:
        raise PeerFailed("weft", f"answered {status}: {said}", "")
    return int(said["run_id"])


def watch(weft: Weft) -> float:
    """Wait for the end of all runs; the most memory that one of their processes had."""
    peak, until = 0.0, time.monotonic() + LONGEST_SECONDS
    while weft.unfinished():
        if time.monotonic() > until:
            raise PeerFailed("weft", "did not end", "\n".join(weft.roles.complaints()))
        peak = max([peak, *(memory(pid) for pid in family(weft.pid) if is_spider(weft, pid))])
        time.sleep(LOOK_SECONDS)
    return peak


def is_spider(weft: Weft, pid: int) -> bool:
    try:
        return weft.is_for_spiders(pid)
    except OSError:
        return False


def goals(results: Mapping[str, Result]) -> list[Goal]:
    asked = [(WEFT, SCRAPY, 0.8), (WEFT, SCRAPY_REDIS, 1.2), (WEFT_TWO, WEFT, 1.7)]
    return [
        Goal(
            what=f"{one}: pages a second, beside {other}",
            value=results[one].wall.median / results[other].wall.median,
            at_least=least,
            unit="×",
        )
        for one, other, least in asked
        if one in results and other in results
    ]
