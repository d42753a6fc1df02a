"""Whole crawls on every kind of frontier: the site of ``crawl.py``, one worker, and eight of them on the database.

Each brings every page once, or the benchmark fails. The servers have both cores, as weft and the site have: the figures
are for beside one another, and what a server takes is not counted as weft's.
"""

import argparse
import os
import uuid
from collections.abc import Sequence
from contextlib import ExitStack

from bench import site_crawlers
from bench.crawl import weft_crawls
from bench.measure import Goal
from bench.nginx_site import NginxSite
from bench.servers import Servers
from bench.site_crawlers import Crawlers, Results, Told
from tests.servers.dynamodb import CREDENTIALS, table_url

WORKERS = 8


def main(arguments: Sequence[str]) -> int:
    options = site_crawlers.options("crawl_stores", __doc__, pages=20_000, separator=";").parse_args(arguments)
    return site_crawlers.compare(options, contenders, goals)


def contenders(site: NginxSite, stack: ExitStack, options: argparse.Namespace) -> Crawlers:
    os.environ.update(CREDENTIALS)
    servers = stack.enter_context(Servers())

    def crawl(workers: int = 1, *, database: str = "", frontier: str = "") -> Told:
        places = argparse.Namespace(database=database, frontier=frontier)
        return weft_crawls(site, places, workers=workers, warc=False)

    return {
        "SQLite": crawl,
        "PostgreSQL": lambda: crawl(database=servers.postgresql.new_database()),
        "SQLite, frontier in Redis": lambda: crawl(frontier=f"{servers.redis.url}?prefix={uuid.uuid4().hex}:"),
        "SQLite, frontier in DynamoDB, played by moto": lambda: crawl(frontier=table_url(servers.dynamodb)),
        f"SQLite, {WORKERS} workers": lambda: crawl(WORKERS),
        f"PostgreSQL, {WORKERS} workers": lambda: crawl(WORKERS, database=servers.postgresql.new_database()),
    }


def goals(results: Results) -> list[Goal]:
    """None of speed: that every page was brought once is checked for each."""
    most = max(memory for each in results.values() for memory in each.memory.values)
    return [Goal(what="memory of a crawling process", value=most, at_most=150, unit=" MB")]
