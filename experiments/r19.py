"""R19: a crawl that was interrupted ends with the same pages as one that was not.

Several workers crawl a site whose pages are known, while workers are killed with SIGKILL, the broker is restarted and
the whole system is killed and started again. When the crawl says that it is done, every page must be stored once, and
hardly any may have been fetched again. Red control: an address that was given out is never given again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec
from sqlalchemy import select, update

from experiments.chaos import Chaos, Span, role_victim
from experiments.cluster import Cluster
from experiments.maze import Maze
from experiments.meanwhile import meanwhile
from experiments.report import Report, Tally
from tests import servers
from tests.waiting import eventually
from weft.app import App
from weft.db import schema
from weft.db.database import Transaction

RED = "r19:give_once"
PATIENCE_SECONDS = 600.0
PROJECT, DATASET = "maze", "pages"
MOST_AGAIN = 0.02
"""The share of pages that may be fetched again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything."""

    pages: int
    hosts: int
    workers: int
    delay: float
    """Seconds between the requests to one host."""
    kills: int
    every: Span
    blackouts: int
    """How often everything is killed at once."""
    broker_restarts: int = 0
    """Between two blackouts."""
    again: float = MOST_AGAIN
    patience: float = PATIENCE_SECONDS
    """How long the crawl may take once nobody is killed any more."""


REDUCED = Size(pages=600, hosts=12, workers=3, delay=0.1, kills=4, every=(0.6, 1.2), blackouts=1, again=0.5)
"""So few pages that those under way at a kill are many of them."""
SHOWING = Size(pages=200, hosts=8, workers=2, delay=0.1, kills=2, every=(0.4, 0.6), blackouts=0, patience=12.0)
FULL = Size(pages=50_000, hosts=50, workers=8, delay=0.25, kills=42, every=(4.0, 6.0), blackouts=2, broker_restarts=1)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R19")
    await scene(report, SHOWING if red else FULL if full else REDUCED, red=RED if red else None)
    return report


async def scene(report: Report, size: Size, red: str | None) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        broker = stack.enter_context(servers.redis()) if size.broker_restarts else None
        database = stack.enter_context(servers.postgresql()).new_database() if size.broker_restarts else ""
        settings = {"crawl_contact": "weft@weft.example", "allowed_networks": "127.0.0.0/8", "capacity": 1}
        places = {"database": database, "broker": broker.url if broker else ""}
        cluster = stack.enter_context(Cluster(**places, **settings))  # type: ignore[arg-type]
        maze = Maze(pages=size.pages, hosts=size.hosts)
        cluster.serve(red=red)
        workers = [cluster.worker(f"w{number}", red=red) for number in range(size.workers)]
        async with maze.serving(), cluster.app() as app:
            await cluster.ready(app)
            crawl = await app.crawls.create(PROJECT, spec(maze, size), name="maze", by="experiment")
            await eventually(lambda: maze.fetched.total() > size.pages // 20, PATIENCE_SECONDS)
            killing = Chaos([role_victim(each) for each in workers], random.Random())
            for part in range(size.blackouts + 1):
                if part:
                    black_out(cluster)
                    await cluster.ready(app)
                async with meanwhile(lambda: restart(broker, size)):
                    await killing.run(size.kills // (size.blackouts + 1), every=size.every, down=(0.0, 0.5))
            in_time = await over(app, crawl.id, size.patience)
            report.expect(in_time, f"the crawl goes on after {size.patience:g} s: {await app.crawls.counts(crawl.id)}")
            report.expect(not cluster.fallen(), f"without being killed: {cluster.fallen()}")
            await take_stock(report, app, maze, size, kills=killing.kills.total(), began=began)


def spec(maze: Maze, size: Size) -> dict[str, object]:
    return {
        "urls": [maze.url(0)],
        "follow": True,
        "scope": {"within": "any", "depth": 100},
        "politeness": {"delay_seconds": size.delay, "adaptive": False},
        "keeping": {"warc": False},
        "spread": size.workers,
        "dataset": DATASET,
    }


async def restart(broker: servers.Server | None, size: Size) -> None:
    """Kill the broker now and then, and start it again."""
    for _ in range(size.broker_restarts if broker is not None else 0):
        assert broker is not None
        await asyncio.sleep(sum(size.every))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)


def black_out(cluster: Cluster) -> None:
    """Everything dies at once, and comes back."""
    for role in cluster.roles.values():
        role.kill_family()
    for role in cluster.roles.values():
        role.start()


async def over(app: App, crawl_id: int, patience: float) -> bool:
    async def is_over() -> bool:
        return (await app.crawls.get(crawl_id)).state == "done"

    try:
        await eventually(is_over, patience)
    except AssertionError:
        return False
    return True


async def take_stock(report: Report, app: App, maze: Maze, size: Size, *, kills: int, began: float) -> None:
    """Compare what is stored with the pages that there are."""
    stored, wanted = Counter(await app.db.read(stored_pages)), maze.all()
    pages = {url: count for url, count in stored.items() if url in wanted}
    lost, doubled = wanted - pages.keys(), sum(count - 1 for count in pages.values())
    tally = Tally(
        attempted=len(wanted),
        acknowledged=len(wanted),
        ok=len(wanted) - len(lost),
        lost=len(lost),
        duplicated=doubled,
        kills=kills,
        seconds=time.monotonic() - began,
    )
    report.add("the maze", tally)
    unfetched = [url for url in pages if not maze.fetched[url]]
    report.expect(not unfetched, f"pages were stored that nobody fetched: {unfetched[:5]}")
    again = maze.fetched.total() - len(maze.fetched)
    report.note(f"{again} of {len(wanted)} pages were fetched again ({again / len(wanted):.2%})")
    report.expect(again <= size.again * len(wanted), f"{again} of {len(wanted)} pages were fetched again")


def stored_pages(tx: Transaction) -> list[str]:
    """The address of each thing in the dataset: one that is there twice is stored twice."""
    datasets, records, revisions = schema.datasets, schema.records, schema.revisions
    newest = (revisions.c.record_id == records.c.id) & (revisions.c.number == 1)
    query = select(revisions.c.data).join(records, newest).join(datasets, datasets.c.id == records.c.dataset_id)
    query = query.where(datasets.c.project == PROJECT, datasets.c.name == DATASET)

    return [str(msgspec.json.decode(row.data)["url"]) for row in tx.rows(query)]


def give_once() -> None:
    """Red control: what is given out is done at once, so that nobody gets it again when its holder dies."""
    from weft.crawls.sql_frontier import SqlFrontier
    from weft.ports import HostLease, Kept, Turn, Turned

    given_by = SqlFrontier.turn

    async def turn(self: SqlFrontier, crawl: int, holder: str, turn: Turn) -> Turned:
        turned = await given_by(self, crawl, holder, turn)
        given: list[HostLease | Kept] = [*turned.leases, *turned.kept]
        keys = [url.key for each in given for url in each.urls]
        urls = schema.urls
        popped = update(urls).where(urls.c.crawl_id == crawl, urls.c.key.in_(keys)).values(state="done", line=None)
        await self._db.transact(lambda tx: tx.execute(popped))
        return turned

    SqlFrontier.turn = turn  # type: ignore[method-assign]
