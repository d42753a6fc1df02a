"""Every kind of frontier: how many addresses a second are found, and leased and completed, in batches."""

import argparse
import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import count

from bench.frontier import outcomes
from bench.latencies import machine_load
from bench.measure import Figures, table
from bench.roles import place
from bench.servers import Servers
from tests.servers.dynamodb import CREDENTIALS, table_url
from weft.adapters.registry import open_frontier
from weft.app import open_app
from weft.clock import now
from weft.fetching.urls import key_of
from weft.ports import Found, Frontier, HostLease, HostReport, Limits, Turn

SHAPES = {"1": (1, 1, 200), "50": (1, 50, 60), "500": (1, 500, 14), "50 hosts": (50, 1, 40)}
"""What a turn completes and leases: so many hosts, so many addresses of each; and how many turns."""
SLOW = 8
"""How many times fewer turns are made where the store is only played."""
FOUND = 500
"""Addresses that are found with one turn."""
STATE = '{"delay": 1.0, "robots": "User-agent: *\\nDisallow: /private\\n", "robots_at": 1780315200000000}'

Opened = AbstractAsyncContextManager[Frontier]

_crawls = count(1)


@dataclass(frozen=True, slots=True)
class Kind:
    """A frontier that is measured."""

    name: str
    opened: Callable[[], Opened]
    is_played: bool = False


def kinds(servers: Servers) -> list[Kind]:
    return [
        Kind("SQLite", lambda: in_database("")),
        Kind("PostgreSQL", lambda: in_database(servers.postgresql.new_database())),
        Kind("Redis, in memory", lambda: served(f"{servers.redis.url}?prefix={uuid.uuid4().hex}:")),
        Kind("Redis, on disk at once", lambda: served(f"{servers.careful_redis.url}?prefix={uuid.uuid4().hex}:")),
        Kind("DynamoDB, played by moto", lambda: served(table_url(servers.dynamodb)), is_played=True),
    ]


@asynccontextmanager
async def in_database(url: str) -> AsyncIterator[Frontier]:
    with place(database=url, broker="memory:") as config:
        app = await open_app(config)
        yield app.frontier
        await app.close()


@asynccontextmanager
async def served(url: str) -> AsyncIterator[Frontier]:
    os.environ.update(CREDENTIALS)
    frontier = open_frontier(url, now)
    yield frontier
    await frontier.close()


@dataclass(slots=True)
class Seen:
    """Addresses a second of one kind, by shape; and the processor time of this process for each, in microseconds."""

    found: Figures
    rates: dict[str, Figures]
    costs: dict[str, Figures]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        wanted = [kind for kind in kinds(servers) if all(word.lower() in kind.name.lower() for word in options.only)]
        seen = {kind.name: Seen(Figures(), figures(), figures()) for kind in wanted}
        for number in range(options.runs):
            for kind in wanted:
                asyncio.run(measure(kind, seen[kind.name]))
                print(f"run {number + 1}: {kind.name}", flush=True)
    head = ("frontier", "found", *SHAPES)
    print(
        "Addresses a second\n" + table(head, [(name, each.found, *each.rates.values()) for name, each in seen.items()])
    )
    costs = [(name, *each.costs.values()) for name, each in seen.items()]
    print("\nProcessor time of the client, microseconds for each address\n" + table(("frontier", *SHAPES), costs))
    print(machine_load())
    return 0


def figures() -> dict[str, Figures]:
    return {shape: Figures() for shape in SHAPES}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench frontiers", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured (3); medians are told")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only frontiers with all of these words")
    return parser.parse_args(arguments)


async def measure(kind: Kind, seen: Seen) -> None:
    async with kind.opened() as frontier:
        found = spent = 0.0
        for shape, (hosts, each, turns) in SHAPES.items():
            turns = max(2, turns // SLOW) if kind.is_played else turns
            crawl = next(_crawls)
            number, took = await fill(frontier, crawl, 2 * hosts, each * (turns // 2 + 1))
            found, spent = found + number, spent + took
            began, busy = time.perf_counter(), time.process_time()
            await walk(frontier, crawl, hosts, each, turns)
            addresses = hosts * each * turns
            seen.rates[shape].add(addresses / (time.perf_counter() - began))
            seen.costs[shape].add((time.process_time() - busy) * 1e6 / addresses)
        seen.found.add(found / spent)


async def fill(frontier: Frontier, crawl: int, hosts: int, each: int) -> tuple[int, float]:
    """Let so many hosts have so many addresses each; how many there are, and the seconds that it took."""
    await frontier.open(crawl, Limits())
    names = [f"h{number}.c{crawl}.example" for number in range(hosts)]
    urls = [(f"http://{name}/section/{page}/some-page-of-it.html", name) for page in range(each) for name in names]
    addresses = [Found(key_of(url), url, name, depth=1) for url, name in urls]
    began = time.perf_counter()
    for start in range(0, len(addresses), FOUND):
        await frontier.turn(crawl, "bench", Turn(found=addresses[start : start + FOUND]))
    return len(addresses), time.perf_counter() - began


async def walk(frontier: Frontier, crawl: int, hosts: int, each: int, turns: int) -> None:
    """Complete what was leased and lease as much again, with one turn."""
    held: list[HostLease] = []
    for _ in range(turns + 1):
        reports = [HostReport(one.host, one.fence, outcomes(one), state=STATE, release=True) for one in held]
        turn = Turn(reports=reports, hosts=hosts, urls_per_host=each)
        turned = await frontier.turn(crawl, "bench", turn)
        held = turned.leases
        given = sum(len(one.urls) for one in held)
        if given != hosts * each or not all(kept.held for kept in turned.kept):
            raise RuntimeError(f"{given} of {hosts * each} addresses were given")
