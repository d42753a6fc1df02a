"""One spider on weft's frontier: beside plain Scrapy and scrapy-redis, and in two runs beside one, on the same site.

The spider is the same everywhere (``crawlers/scrapy_spider.py``), and its settings are. In weft its requests come from
the frontier in the database and its items go to a dataset; the others keep theirs in memory or in Redis, and write
JSON lines. The site has one core and the crawler the other, all of weft in one run as well; two runs have both, and
then what the site's server took of them does not count.
"""

import argparse
import asyncio
import json
import time
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime

from bench import site_crawlers
from bench.crawlers.scrapy_spider import SETTINGS
from bench.measure import Goal, family
from bench.nginx_site import NginxSite
from bench.peers.peer import PeerFailed
from bench.site_crawlers import (
    CRAWLERS,
    CRAWLERS_CORE,
    LONGEST_SECONDS,
    Crawlers,
    Results,
    Told,
    faster,
    memory,
    on_core,
    peer,
    redis,
    server_seconds,
    spent,
)
from bench.spider_hosts import Weft, weft_up
from weft.app import open_app
from weft.config import Config

SCRAPY, SCRAPY_REDIS = "Scrapy", "scrapy-redis"
BARE, WEFT, WEFT_TWO = "Scrapy in weft, no frontier", "FrontierScheduler", "FrontierScheduler, two runs"
PROJECT = "site"
SPIDER = CRAWLERS / "scrapy_spider.py"
LOOK_SECONDS = 1.0
"""Each look costs weft something."""


def main(arguments: Sequence[str]) -> int:
    options = site_crawlers.options("scrapy_frontier", __doc__, pages=4_000, separator=";").parse_args(arguments)
    return site_crawlers.compare(options, contenders, goals)


def contenders(site: NginxSite, stack: ExitStack, options: argparse.Namespace) -> Crawlers:
    """Everybody who crawls, by name."""
    feed = str(site.log.with_name("feed.jl"))
    return {
        SCRAPY: lambda: peer("scrapy_spider.py", feed, *site.seeds),
        SCRAPY_REDIS: lambda: peer("scrapy_redis_spider.py", redis(stack), feed, *site.seeds),
        BARE: lambda: weft_crawls(site, options, runs=1, frontier=False),
        WEFT: lambda: weft_crawls(site, options, runs=1),
        WEFT_TWO: lambda: weft_crawls(site, options, runs=2),
    }


def weft_crawls(site: NginxSite, options: argparse.Namespace, *, runs: int, frontier: bool = True) -> Told:
    """The spider in runs of `weft up`, from the moment when all of them have been handed over to the last one's end."""
    places = {name: getattr(options, name) for name in ("database", "frontier") if getattr(options, name)}
    with ExitStack() as stack:
        if runs == 1:
            stack.enter_context(on_core(CRAWLERS_CORE))
        weft = stack.enter_context(weft_up(1, capacity=runs, **places))
        asyncio.run(deployed(weft.roles.config))
        warm_up(weft)
        before, of_site = spent(weft), server_seconds(site)
        run_ids = [submit(weft, site.seeds, frontier) for _ in range(runs)]
        peak = watch(weft)
        seconds, used = lasted(weft, run_ids), spent(weft) - before
        if runs > 1:
            seconds -= (server_seconds(site) - of_site) / runs
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


def lasted(weft: Weft, run_ids: Sequence[int]) -> float:
    """Seconds from when the first run was handed over until the last one had ended."""
    runs = [weft.line.ask("GET", f"/v1/runs/{run_id}")[1] for run_id in run_ids]
    began, ended = ([datetime.fromisoformat(run[name]) for run in runs] for name in ("queued_at", "finished_at"))
    return (max(ended) - min(began)).total_seconds()


def is_spider(weft: Weft, pid: int) -> bool:
    try:
        return weft.is_for_spiders(pid)
    except OSError:
        return False


def goals(results: Results) -> list[Goal]:
    asked = [(WEFT, SCRAPY, 0.8), (WEFT, SCRAPY_REDIS, 1.2), (WEFT_TWO, WEFT, 1.7)]
    return [
        Goal(what=f"{one}: pages a second, beside {other}", value=faster(results, one, other), at_least=least, unit="×")
        for one, other, least in asked
        if one in results and other in results
    ]
