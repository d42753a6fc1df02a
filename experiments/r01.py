"""R01: an acknowledged submit is never lost by a process crash.

Clients submit no-op runs over HTTP as fast as they are acknowledged while clients, control processes, workers, the
broker and the database are killed with SIGKILL in random order and started again 0 to 3 seconds later. When all is
quiet, every acknowledged run must be there exactly once and have succeeded. Red control: a control process tells
clients before the commit, and is killed as soon as a client was told something.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments import chaos, checker
from experiments.clients import acknowledged, clients, door, story, victim
from experiments.cluster import Cluster, Role
from experiments.report import Report
from tests import servers
from tests.waiting import eventually

RED = "r01:acknowledge_before_commit"
UNCOMMITTED_SECONDS = 0.5
"""How long the red control has told what it has not committed; a kill follows an answer within a tenth of that."""
HANDS = 4
"""Submits that each client has under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it."""

    kills: int
    clients: int
    every: chaos.Span
    down: chaos.Span
    acknowledged: int
    """In all; an experiment with fewer has shown too little."""


REDUCED = Size(kills=18, clients=2, every=(0.2, 0.7), down=(0.0, 1.5), acknowledged=200)
FULL = Size(kills=100, clients=8, every=(2.0, 5.0), down=(0.0, 3.0), acknowledged=50_000)
SHOWING = Size(kills=8, clients=2, every=(0.1, 0.3), down=(0.0, 0.1), acknowledged=0)
"""Enough for the red control, which kills the control process only."""
SETTINGS: dict[str, Any] = {"requests_per_second": 100_000}


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R01")
    size = SHOWING if red else FULL if full else REDUCED
    if red:
        await embedded(report, size, red=True)
    elif full:
        await each_alone(report, size)
    else:
        await side_by_side(report, size)
    acknowledged = report.total.acknowledged
    report.expect(acknowledged >= size.acknowledged, f"only {acknowledged} submits were acknowledged")
    return report


async def each_alone(report: Report, size: Size) -> None:
    await embedded(report, size)
    await distributed(report, "PostgreSQL and Redis", servers.redis, size)
    await distributed(report, "PostgreSQL and RabbitMQ", servers.rabbitmq, size)


async def side_by_side(report: Report, size: Size) -> None:
    """The same scenes at once: they mostly wait for what comes up again."""
    await asyncio.gather(
        embedded(report, size),
        distributed(report, "PostgreSQL and Redis", servers.redis, size),
        distributed(report, "PostgreSQL and RabbitMQ", servers.rabbitmq, size),
    )


async def embedded(report: Report, size: Size, *, red: bool = False) -> None:
    """SQLite, one control process and two workers."""
    with Cluster(**SETTINGS) as cluster:
        roles = [cluster.serve(red=RED if red else None), cluster.worker("w1"), cluster.worker("w2")]
        victims = [chaos.role_victim(role) for role in (roles[:1] if red else roles)]
        await scene(report, "SQLite", cluster, victims, size, red=red)


async def distributed(report: Report, name: str, start_broker: Callable[[], servers.Server], size: Size) -> None:
    """Two control processes and two workers, whose servers are killed as well."""
    with (
        servers.postgresql() as database,
        start_broker() as broker,
        Cluster(database=database.new_database(), broker=broker.url, **SETTINGS) as cluster,
    ):
        roles = [cluster.serve("serve1"), cluster.serve("serve2"), cluster.worker("w1"), cluster.worker("w2")]
        victims = [chaos.role_victim(role) for role in roles]
        victims += [chaos.server_victim(database), chaos.server_victim(broker)]
        await scene(report, name, cluster, victims, size, red=False)


async def scene(
    report: Report, name: str, cluster: Cluster, victims: Sequence[chaos.Victim], size: Size, *, red: bool
) -> None:
    began = time.monotonic()
    seed = random.randrange(1_000_000)
    async with cluster.app() as app:
        await cluster.ready(app)
        async with clients(cluster, size.clients, hands=HANDS, patient=1, **await door(cluster, app)) as started:
            everyone = list(victims) if red else [*victims, *(victim(cluster, role) for role in started)]
            when = partial(is_answered, cluster, started) if red else None
            killing = chaos.Chaos(everyone, random.Random(seed), when)
            await killing.run(size.kills, every=size.every, down=size.down)
            fallen = [*killing.fallen, *cluster.fallen()]
            report.expect(not fallen, f"{name}: without being killed {fallen}")
        more = {"kills": killing.kills.total(), "seconds": time.monotonic() - began}
        await checker.check(report, name, app, lambda: story(cluster), patience=120, **more)
    report.note(f"{name}: seed {seed}, kills {dict(killing.kills)}")


async def is_answered(cluster: Cluster, started: Sequence[Role]) -> bool:
    """Wait until a client is answered, and say so at once."""

    def answers() -> int:
        return sum(acknowledged(cluster, role) for role in started)

    seen = answers()
    await eventually(lambda: answers() > seen, 120)
    return True


def acknowledge_before_commit() -> None:
    """Answer as soon as the rows are written, a moment before they are committed."""
    from weft.db.database import Database

    async def transact(self: Database, work: Any, *, urgent: bool = False) -> Any:
        early: Future[Any] = Future()

        def told_early(tx: Any) -> Any:
            try:
                value = work(tx)
            except Exception as problem:
                if not early.done():
                    early.set_exception(problem)
                raise
            if not early.done():
                early.set_result(value)
                if tx.effects:  # runs were queued; all else goes on as ever
                    time.sleep(UNCOMMITTED_SECONDS)
            return value

        self._engines.submit(told_early, urgent=urgent)
        return await asyncio.wrap_future(early)

    Database.transact = transact  # type: ignore[method-assign]
