"""A whole site: weft beside Scrapy, scrapy-redis, Crawlee and the least that a crawl can cost, on one site in one run.

Everybody crawls every page once and keeps title and links of each: weft in its datasets, the others as JSON lines.
weft keeps its frontier in the database, obeys robots.txt and waits where it should (the delay of these hosts is 0).
The site has one core and the crawler the other; two workers of weft have both, and then what the site's server took of
them does not count.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import site_crawlers
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
    memory,
    on_core,
    peer,
    process,
    redis,
    server_seconds,
    spent,
)
from bench.spider_hosts import Weft, weft_up

PROTOTYPE, SCRAPY, SCRAPY_REDIS, CRAWLEE = "prototype", "Scrapy", "scrapy-redis", "Crawlee"
WEFT, WEFT_WARC, WEFT_TWO = "weft", "weft with WARC", "weft with two workers"
LOOK_SECONDS = 1.0
"""Each look costs weft something."""
LONGEST_START_SECONDS = 20.0
AT_REST = 0.03
"""Seconds of a processor that weft may take between two looks once it has started."""


def main(arguments: Sequence[str]) -> int:
    options = site_crawlers.options("crawl", __doc__, pages=20_000, separator=",").parse_args(arguments)
    return site_crawlers.compare(options, contenders, goals)


def contenders(site: NginxSite, stack: ExitStack, options: argparse.Namespace) -> Crawlers:
    """Everybody who crawls, by name."""
    feed = str(site.log.with_name("feed.jl"))
    return {
        PROTOTYPE: lambda: process([sys.executable, str(CRAWLERS / "prototype.py"), *site.seeds]),
        SCRAPY: lambda: peer("scrapy_spider.py", feed, *site.seeds),
        CRAWLEE: lambda: peer("crawlee_spider.py", feed, *site.seeds),
        SCRAPY_REDIS: lambda: peer("scrapy_redis_spider.py", redis(stack), feed, *site.seeds),
        WEFT: lambda: weft_crawls(site, options, workers=1, warc=False),
        WEFT_WARC: lambda: weft_crawls(site, options, workers=1, warc=True),
        WEFT_TWO: lambda: weft_crawls(site, options, workers=2, warc=False),
    }


def weft_crawls(site: NginxSite, options: argparse.Namespace, *, workers: int, warc: bool) -> Told:
    """A crawl by `weft up`: one run for each worker, all of its processes counted."""
    places = {name: getattr(options, name) for name in ("database", "frontier") if getattr(options, name)}
    settings = {"crawl_contact": "bench@weft.example", "allowed_networks": "127.0.0.0/8", "capacity": 1}
    with ExitStack() as stack:
        if workers == 1:
            stack.enter_context(on_core(CRAWLERS_CORE))
        weft = stack.enter_context(weft_up(workers, **settings, **places))
        settle(weft)
        before, of_site = spent(weft), server_seconds(site)
        crawl_id = submit(weft, spec(site, warc, workers))
        peak = watch(weft, crawl_id)
        used, crawl = spent(weft) - before, ask(weft, f"/v1/crawls/{crawl_id}")["crawl"]
        seconds = (moment(crawl["ended_at"]) - moment(crawl["created_at"])).total_seconds()
        if workers > 1:
            seconds -= (server_seconds(site) - of_site) / workers
        return {"pages": crawl["counts"]["done"], "seconds": seconds, "cpu": used, "memory_mb": peak}


def settle(weft: Weft) -> None:
    """Wait until all of weft has started, so that what a crawl takes is its own."""
    until, before = time.monotonic() + LONGEST_START_SECONDS, -1.0
    while (now := spent(weft)) - before > AT_REST and time.monotonic() < until:
        before = now
        time.sleep(LOOK_SECONDS)


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
        return b"weft.crawler" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def goals(results: Results) -> list[Goal]:
    """What is asked of weft, beside whoever was measured."""

    def faster(one: str, other: str) -> float:
        return site_crawlers.faster(results, one, other)

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
