"""Turns of several processes on one server wait for each other and never both."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.conftest import SetClock, plain_engine
from weft.crawls.sql_frontier import SqlFrontier
from weft.db.database import Database, open_database
from weft.fetching.urls import key_of
from weft.ports import DONE, QUEUED, Counts, Found, HostReport, Outcome, Turn

on_postgres = pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
on_mariadb = pytest.mark.parametrize("database_kind", ["mariadb"], indirect=True)

HOSTS, HANDS, TURNS = 9, 6, 25

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def databases(database_url: str) -> Iterator[list[Database]]:
    opened = [open_database(database_url, pool=2) for _ in range(HANDS)]
    yield opened
    for db in opened:
        db.close()


def deadlocks(url: str) -> int:
    with plain_engine(url).connect() as connection:
        return int(connection.execute(text(DEADLOCKS)).scalar_one())


def some_found(chance: random.Random, crawl: int) -> list[Found]:
    """Addresses of hosts that all know, in any order, and now and then of a new one."""
    names = [f"h{chance.randrange(HOSTS)}.example" for _ in range(8)] + [f"new{chance.randrange(200)}.example"]
    chance.shuffle(names)
    urls = [f"http://{name}/{chance.randrange(40)}" for name in names]
    return [Found(key_of(url), url, name) for url, name in zip(urls, names, strict=True)]


async def work(frontier: SqlFrontier, number: int) -> None:
    """Find, tell, keep, release and lease, in two crawls at once."""
    chance = random.Random(number)
    for _ in range(TURNS):
        crawl = chance.choice([1, 2])
        turned = await frontier.turn(
            crawl, f"{number}", Turn(found=some_found(chance, crawl), hosts=3, urls_per_host=2)
        )
        reports = []
        for held in turned.leases:
            states = [chance.choice([DONE, QUEUED]) for _ in held.urls]
            outcomes = [Outcome(each.key, state) for each, state in zip(held.urls, states, strict=True)]
            reports.append(HostReport(held.host, held.fence, outcomes, release=True))
        kept = (await frontier.turn(crawl, f"{number}", Turn(some_found(chance, crawl), reports))).kept
        assert all(each.held for each in kept)


async def work_side_by_side(databases: list[Database], clock: SetClock) -> None:
    frontiers = [SqlFrontier(db, clock) for db in databases]
    await asyncio.gather(*(work(frontier, number) for number, frontier in enumerate(frontiers)))
    for crawl in (1, 2):
        counts = await frontiers[0].counts(crawl)
        listed = [each.state for each in await frontiers[0].urls(crawl, limit=10_000)]
        assert counts == Counts(queued=listed.count(QUEUED), done=listed.count(DONE), hosts=counts.hosts)


@on_postgres
async def test_turns_on_the_same_hosts_side_by_side_never_deadlock(
    databases: list[Database], database_url: str, clock: SetClock
) -> None:
    before = deadlocks(database_url)
    await work_side_by_side(databases, clock)
    for db in databases:  # a server counts what a connection has seen when it ends
        db.close()
    assert deadlocks(database_url) == before


@on_mariadb
async def test_turns_on_the_same_hosts_side_by_side_lose_nothing(databases: list[Database], clock: SetClock) -> None:
    """Two that find the same new host may get in each other's way there; one of them is run again."""
    await work_side_by_side(databases, clock)
