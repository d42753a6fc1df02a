"""R12: items are stored exactly once per run, attempt and number, whatever is killed.

Spiders yield numbered items with a checksum and note each once it is on disk, while spiders, zygotes, workers, control
processes and the database are killed with SIGKILL. Some workers are far away, and what stands between them and the
gateway loses answers and brings batches twice or late. When all is quiet, every noted item must be stored once and
whole, counts must be those of the rows, every run must have succeeded, and no process may be left. Red control: the
store takes whatever comes, whether it has it or not.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from experiments.chaos import Chaos, Span, Victim, role_victim, server_victim
from experiments.checker import drained
from experiments.cluster import Cluster, Role
from experiments.crawling import Field, crawl, deploy
from experiments.meanwhile import meanwhile
from experiments.postman import Postman
from experiments.report import Report, Tally
from experiments.stocktaking import Stock, miscounted, stored_of, take_stock
from tests import servers
from tests.servers.processes import residents
from tests.waiting import eventually
from weft.app import App
from weft.db import schema
from weft.errors import DatabaseDown

RED = "r12:store_what_comes"
PATIENCE_SECONDS = 180.0
GONE_SECONDS = 20.0
"""How long what has ended may take to be gone."""

SMALL_BYTES, LARGE_BYTES = 300, 80_000
FEED_SECONDS = 0.2
PIECE = 20
"""Runs whose items are compared at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of each scene."""

    runs: int
    """At least; more are submitted as long as there is somebody to kill."""
    items: int
    kills: int
    every: Span
    down: Span
    pause: float
    """How long a spider rests at most after every tenth item or so."""
    large: int = 8
    """One run in so many yields large items, so that it needs several files."""
    capacity: int = 4
    waiting: int = 4
    """Runs that are live at any time while others are killed."""


REDUCED = Size(runs=8, items=200, kills=10, every=(0.3, 0.9), down=(0.0, 0.5), pause=0.2)
FULL = Size(runs=100, items=1000, kills=100, every=(1.0, 5.0), down=(0.0, 3.0), pause=0.1, large=25, waiting=16)
SHOWING = Size(runs=3, items=200, kills=0, every=(0, 0), down=(0, 0), pause=0.2)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R12")
    if red:
        await far(report, SHOWING, red=RED)
    elif full:
        await near(report, FULL)
        await far(report, FULL)
    else:
        await asyncio.gather(near(report, REDUCED), far(report, REDUCED))
    return report


async def near(report: Report, size: Size) -> None:
    """Workers on PostgreSQL, which is killed as well."""
    with servers.postgresql() as server, Cluster(database=server.new_database(), capacity=size.capacity) as cluster:
        roles = [cluster.serve(), cluster.worker("w1"), cluster.worker("w2")]
        async with cluster.app() as app:
            victims = [*map(role_victim, roles), server_victim(server)]
            await scene(report, "on the database", cluster, app, size, victims)


async def far(report: Report, size: Size, red: str | None = None) -> None:
    """Workers at the other end of a gateway, on SQLite."""
    with Cluster(capacity=size.capacity) as cluster:
        gateway, chance = cluster.serve(red=red), random.Random()
        async with cluster.app() as app, Postman(cluster.ports["serve"], chance) as postman:
            workers = [await far_worker(cluster, app, f"far{number}", postman.port) for number in (1, 2)]
            victims = [] if red else [role_victim(role) for role in (gateway, *workers)]
            await scene(report, "over HTTP", cluster, app, size, victims)
        report.note(f"over HTTP: of the batches {dict(postman.tricks)}")
        report.expect(len(postman.tricks) == 3, f"over HTTP: only {dict(postman.tricks)}, so too little was shown")


async def far_worker(cluster: Cluster, app: App, name: str, port: int) -> Role:
    _, token = await app.keys.create("join", {}, by="experiment", kind="join")
    alone: dict[str, Any] = {"database": None, "broker": None, "data_dir": str(cluster.folder / name)}
    return cluster.worker(name, connect=f"http://127.0.0.1:{port}", token=token, **alone)


async def scene(report: Report, name: str, cluster: Cluster, app: App, size: Size, victims: Sequence[Victim]) -> None:
    """Let spiders crawl while others die, and take stock when all is quiet."""
    began, field = time.monotonic(), Field(cluster)
    await cluster.ready(app)
    await deploy(app)
    sizes = [LARGE_BYTES if number % size.large == 0 else SMALL_BYTES for number in range(size.runs)]
    await app.runs.submit([crawl(size.items, pause=size.pause, most_bytes=most) for most in sizes])
    everyone = [*victims, *passing(field)] if victims else []
    killing = Chaos(everyone, random.Random())
    async with meanwhile(field.follow):
        await eventually(field.spiders, PATIENCE_SECONDS)
        async with meanwhile(lambda: feed(app, size)):
            await killing.run(size.kills, every=size.every, down=size.down)
        fallen = [*killing.fallen, *cluster.fallen()]
        report.expect(not fallen, f"{name}: without being killed {fallen}")
        report.expect(await drained(app, PATIENCE_SECONDS), f"{name}: runs go on after {PATIENCE_SECONDS:g} s")
        await settled(report, name, field)
    kills = killing.kills.total() - field.missed
    await take(report, name, app, field, kills=kills, seconds=time.monotonic() - began)
    report.note(f"{name}: kills {dict(killing.kills)}, of which {field.missed} met nobody")
    await nothing_left(report, name, cluster)


async def feed(app: App, size: Size) -> None:
    """See to it that there is always a spider that can be killed."""
    while True:
        try:
            missing = size.waiting - sum((await app.runs.counts()).values())
            if missing > 0:
                await app.runs.submit([crawl(size.items, pause=size.pause) for _ in range(missing)])
        except DatabaseDown:
            pass
        await asyncio.sleep(FEED_SECONDS)


def passing(field: Field) -> list[Victim]:
    """Those who need not be started again: weft does it."""
    spider = Victim("spider", field.strike_spider, lambda: None, lambda: True)
    zygote = Victim("zygote", field.strike_zygote, lambda: None, lambda: True)
    return [spider, zygote]


async def settled(report: Report, name: str, field: Field, patience: float = GONE_SECONDS) -> None:
    """Wait until no spider runs and workers have nothing on their disks that is not stored."""
    try:
        await eventually(lambda: not field.folders() and not field.spiders(), patience)
    except AssertionError:
        left = [folder.name for folder in field.folders()]
        report.expect(False, f"{name}: left behind are folders {left} and processes {field.spiders()}")


async def take(report: Report, name: str, app: App, field: Field, **more: Any) -> None:
    """Compare the notes with the store."""
    runs = schema.runs
    rows = await app.db.read(lambda tx: list(tx.rows(select(runs.c.id, runs.c.state, runs.c.attempt))))
    ids, noted = [row.id for row in rows], field.noted()
    stock = Stock(miscounted=await app.db.read(miscounted))
    for start in range(0, len(ids), PIECE):
        piece = ids[start : start + PIECE]
        stored = await app.db.read(lambda tx, piece=piece: stored_of(tx, piece))  # type: ignore[misc]
        stock.add(take_stock({place: told for place, told in noted.items() if place[0] in piece}, stored))
    report.add(name, tally(stock, **more))
    unended = [f"{row.id} is {row.state}" for row in rows if row.state != "succeeded"]
    report.expect(not unended, f"{name}: runs have not succeeded: {unended[:5]}")
    report.expect(not stock.corrupt, f"{name}: {stock.corrupt} items are not what was yielded")
    report.expect(not stock.miscounted, f"{name}: {stock.miscounted[:3]}")
    again = sum(row.attempt - 1 for row in rows)
    report.note(f"{name}: {len(rows)} runs, {again} more attempts, {stock.noted} items noted, {stock.stored} stored")


def tally(stock: Stock, **more: Any) -> Tally:
    unnoted = max(stock.stored - stock.doubled - (stock.noted - stock.lost), 0)
    counts = {"acknowledged": stock.noted, "ok": stock.noted - stock.lost, "lost": stock.lost}
    return Tally(attempted=stock.noted + unnoted, duplicated=stock.doubled, recovered=unnoted, **counts, **more)


async def nothing_left(report: Report, name: str, cluster: Cluster) -> None:
    """Ask all roles to stop; after that nothing of the cluster may run."""
    for role in cluster.roles.values():
        role.ask_to_stop()
    for role in cluster.roles.values():
        await role.ended()
    try:
        await eventually(lambda: not residents(str(cluster.folder)), GONE_SECONDS)
    except AssertionError:
        report.expect(False, f"{name}: processes are left: {residents(str(cluster.folder))}")


def store_what_comes() -> None:
    """Red control: every batch is stored behind the one before, also one that was stored already."""
    from weft.items.collector import AttemptTally as Counted
    from weft.items.model import ItemBatch

    def take(self: Counted, harvest: ItemBatch, lines: Sequence[Any]) -> int:
        self.fresh += [(seq, read) for seq, read in enumerate(lines, self.next_seq) if read is not None]
        self.next_seq += len(lines)
        return harvest.first + len(lines)

    Counted.take = take  # type: ignore[method-assign]
