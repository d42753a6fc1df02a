"""R13: what a destination got is what the store has.

Spiders yield numbered items whose dataset is delivered to a bucket, to a folder and to a table of PostgreSQL. The two
control processes that deliver kill themselves now and then, when items were sent and before that was written down, and
the bucket's answers are broken off, so that nobody knows whether an object was kept. In the end each item must be in
each place under its own number, whole, and files must be complete. Red control: what is sent is struck off before.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from sqlalchemy import select

from experiments.checker import drained
from experiments.cluster import Cluster, Role
from experiments.crawling import PROJECT, Field, crawl, deploy
from experiments.meanwhile import meanwhile
from experiments.proxy import Fault, Proxy
from experiments.report import Report, Tally
from experiments.stocktaking import stored_of
from tests import servers
from tests.servers import s3
from tests.waiting import eventually
from weft.adapters import registry
from weft.app import App
from weft.db import schema

DYING, RED = "r13:die_between", "r13:strike_off_first"
DATASET = "numbered"
SECRETS = {"BUCKET": s3.SECRET, "TABLE": "a-password-of-tests"}
PATIENCE_SECONDS = 180.0
CHANCE, AT_LATEST = 0.2, 4
"""How likely a control process dies after a delivery, and after how many it surely does: deaths do not run out."""

ENOUGH = "enough"
"""A file in the folder in which all roles work: from now on nobody dies."""

Key = tuple[int, int, int]
"""Run, attempt and number of an item."""
Found = dict[Key, Any]
"""The content of each item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    runs: int
    items: int
    kills: int


FULL = Size(runs=200, items=500, kills=60)
REDUCED = Size(runs=8, items=100, kills=3)
SHOWING = Size(runs=6, items=50, kills=2)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report, size = Report("R13"), SHOWING if red else FULL if full else REDUCED
    with servers.postgresql() as server, servers.s3_store() as store, tempfile.TemporaryDirectory() as delivered:
        bucket, elsewhere = s3.new_bucket(store), server.new_database()
        with Cluster(database=server.new_database(), capacity=4, destinations_dir=delivered) as cluster:
            roles = [cluster.serve(name, red=RED if red else DYING) for name in ("serve1", "serve2")]
            cluster.worker()
            async with cluster.app() as app, Proxy(store.port) as line:
                await cluster.ready(app)
                field = Field(cluster)
                await begin(app, field, (bucket_at(line, bucket), "file:items", table_at(elsewhere)))
                scene = Scene(cluster, field, app, size, roles, line)
                await scene.go_on(report)
                scene.compare(report, "bucket", await in_objects(s3.bucket_url(store, bucket)))
                scene.compare(report, "folder", in_files(Path(delivered)))
                scene.compare(report, "table", in_table(elsewhere))
    return report


async def begin(app: App, field: Field, places: Sequence[str]) -> None:
    """Let a first item make the dataset, and have it delivered to all of ``places``."""
    await deploy(app)
    for name, value in SECRETS.items():
        await app.secrets.set(PROJECT, name, value, by="experiment")
    async with meanwhile(field.follow):
        await app.runs.submit([crawl(1)])
        await drained(app, PATIENCE_SECONDS)
    for place in places:
        await app.destinations.add(PROJECT, DATASET, place, by="experiment")


class Scene:
    def __init__(
        self, cluster: Cluster, field: Field, app: App, size: Size, roles: Sequence[Role], line: Proxy
    ) -> None:
        self._app, self._size, self._roles, self._line = app, size, roles, line
        self._field, self._enough = field, cluster.folder / ENOUGH
        self._kills = 0
        self._stored: Found = {}
        self._seconds = 0.0

    async def go_on(self, report: Report) -> None:
        """Let spiders yield while deliverers die and answers break off; then wait for what is still under way."""
        began, size = time.monotonic(), self._size
        await self._app.runs.submit([crawl(size.items, pause=0.1) for _ in range(size.runs)])
        async with meanwhile(self._field.follow):
            async with meanwhile(self._break_answers):
                await self._start_the_dead()
            self._line.mend()
            report.expect(await drained(self._app, PATIENCE_SECONDS), "runs go on and on")
        try:
            await eventually(self._has_arrived, PATIENCE_SECONDS)
        except AssertionError:
            report.expect(False, f"items had not arrived after {PATIENCE_SECONDS:g} s")
        self._stored, self._seconds = await stored(self._app), time.monotonic() - began
        report.note(f"{self._line.opened} connections to the bucket, answers broken off half of the time")
        report.expect(len(self._stored) >= size.runs * size.items, f"only {len(self._stored)} items are stored")

    async def _start_the_dead(self) -> None:
        """Start who has killed itself, until there were enough of them."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self._kills < self._size.kills and time.monotonic() < until:
            for role in self._roles:
                if not role.alive:
                    self._kills += 1
                    role.kill()
                    role.start()
            await asyncio.sleep(0.05)
        self._enough.touch()
        await eventually(lambda: all(role.alive for role in self._roles) or self._restart(), 5.0)

    def _restart(self) -> bool:
        """Start who died when there were enough already."""
        for role in self._roles:
            if not role.alive:
                role.start()
        return False

    async def _break_answers(self) -> None:
        """The bucket keeps what it is given, and often nobody learns of it."""
        while True:
            self._line.strike(Fault.BROKEN)
            await asyncio.sleep(random.uniform(0.2, 1.0))
            self._line.mend()
            await asyncio.sleep(random.uniform(0.2, 1.0))

    async def _has_arrived(self) -> bool:
        return not any(each.waiting for each in await self._app.destinations.all(PROJECT, DATASET))

    def compare(self, report: Report, place: str, found: Sequence[tuple[Key, Any]]) -> None:
        """Count what a place has of the items that are stored; the same one twice is no loss, other content is."""
        there = dict(found)
        lost = [key for key, data in self._stored.items() if there.get(key) != data]
        report.add(
            place,
            Tally(
                attempted=len(self._stored),
                acknowledged=len(self._stored),
                ok=len(self._stored) - len(lost),
                lost=len(lost),
                recovered=len(found) - len(there),
                kills=self._kills,
                seconds=self._seconds,
            ),
        )
        strangers = there.keys() - self._stored.keys()
        report.expect(not strangers, f"{place}: has {len(strangers)} items that nobody stored")


def bucket_at(line: Proxy, bucket: str) -> str:
    return f"s3://{s3.KEY}:{{{{secret:BUCKET}}}}@{bucket}/items?endpoint=http://127.0.0.1:{line.port}"


def table_at(url: str) -> str:
    parts = urlsplit(url)
    return (
        f"postgresql://{parts.username}:{{{{secret:TABLE}}}}@{parts.hostname}:{parts.port}{parts.path}/items?rows=items"
    )


async def stored(app: App) -> Found:
    ids = await app.db.read(lambda tx: [row.id for row in tx.rows(select(schema.runs.c.id))])
    found = await app.db.read(lambda tx: stored_of(tx, ids))
    return {(*one, seq): data for one, rows in found.items() for seq, data in rows}


async def in_objects(url: str) -> list[tuple[Key, Any]]:
    blobs = registry.open_blobs(url)
    return [each for key in await blobs.keys("items") for each in _lines(await blobs.get(key) or b"")]


def in_files(folder: Path) -> list[tuple[Key, Any]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [each for path in files for each in _lines(path.read_bytes())]


def in_table(url: str) -> list[tuple[Key, Any]]:
    with psycopg.connect(url) as line:
        if line.execute("SELECT to_regclass('items')").fetchone() == (None,):
            return []  # it is made with the first row
        rows = line.execute("SELECT weft_run, weft_attempt, weft_seq, data FROM items").fetchall()
    return [((run, attempt, seq), data) for run, attempt, seq, data in rows]


def _lines(data: bytes) -> Iterator[tuple[Key, Any]]:
    """The items of a file, which must be whole; what weft added to them is taken off."""
    for line in data.splitlines():
        item = json.loads(line)
        key = item["weft_run"], item["weft_attempt"], item["weft_seq"]
        yield key, {name: value for name, value in item.items() if not name.startswith("weft_")}


def die_between() -> None:
    """Now and then this process dies when items have been sent, and before that is written down."""
    from weft.items import destination_store

    arrived = destination_store.confirm

    def unlucky(*known: Any) -> bool:
        die_now_and_then()
        return arrived(*known)

    destination_store.confirm = unlucky  # type: ignore[assignment]


def strike_off_first() -> None:
    """Red control: items are struck off before they are sent, and then this process may die."""
    from weft.items import destination_store
    from weft.items.deliverer import Deliverer

    deliver = Deliverer._deliver

    async def careless(self: Deliverer, destination: Any, stretch: Any) -> None:
        count = stretch.last - stretch.first + 1
        await self._db.transact(lambda tx: destination_store.confirm(tx, destination.id, stretch, count, self._clock()))
        die_now_and_then()
        await deliver(self, destination, stretch)

    Deliverer._deliver = careless  # type: ignore[method-assign]


_deliveries = itertools.count(1)


def die_now_and_then() -> None:
    is_time = random.random() < CHANCE or next(_deliveries) >= AT_LATEST
    if is_time and not Path(ENOUGH).exists():
        os.kill(os.getpid(), signal.SIGKILL)
