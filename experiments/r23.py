"""R23: while the broker is away, submits are accepted, runs are dispatched, and nothing is lost.

Clients submit steadily over HTTP. The broker is first frozen (it is there and says nothing), then killed, and comes
back at the end of the outage. Meanwhile workers must find work by polling. Red control: workers that wait for rings
alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from experiments import checker
from experiments.clients import clients, door, story
from experiments.cluster import Cluster
from experiments.report import Report
from experiments.submitter import TASK
from tests import servers
from tests.waiting import eventually
from weft.app import App
from weft.client.client import Client, connect
from weft.clock import Moment, now, seconds
from weft.db import schema
from weft.db.database import Transaction
from weft.runs.model import NewRun, RunSpec

RED = "r23:never_poll"
RATE = 15.0
CLIENTS = 2
BACKLOG_SECONDS = 60.0
SHOWING_SECONDS = 5.0
"""How long the red control waits for a backlog that nobody works off."""
ACCEPTED = 0.999


@dataclass(frozen=True, slots=True)
class Outage:
    """What happened while the broker was away."""

    began_at: Moment
    ended_at: Moment

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.began_at) / seconds(1)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R23")
    outage_seconds = 300.0 if full else 5.0 if red else 10.0
    with servers.postgresql() as database:
        scenes = [scene(report, "Redis", database, servers.redis, outage_seconds, red=red)]
        if not red:
            scenes.append(scene(report, "RabbitMQ", database, servers.rabbitmq, outage_seconds, red=False))
        await asyncio.gather(*scenes)
    return report


async def scene(
    report: Report,
    name: str,
    database: servers.Server,
    start_broker: Callable[[], servers.Server],
    outage_seconds: float,
    *,
    red: bool,
) -> None:
    began = time.monotonic()
    with start_broker() as broker, Cluster(database=database.new_database(), broker=broker.url) as cluster:
        cluster.serve()
        for worker in ("w1", "w2"):
            cluster.worker(worker, red=RED if red else None)
        async with cluster.app() as app:
            await cluster.ready(app)
            entrance = await door(cluster, app)
            async with (
                connect(cluster.url(), entrance["key"]) as weft,
                clients(cluster, CLIENTS, rate=RATE, **entrance),
            ):
                await eventually(lambda: len(story(cluster).acked) >= 20, 60)
                outage = await break_down(report, name, weft, broker, outage_seconds)
                await asyncio.to_thread(broker.start)
            returned = time.monotonic()
            more = {"kills": 1, "seconds": time.monotonic() - began}
            patience = SHOWING_SECONDS if red else BACKLOG_SECONDS
            await checker.check(report, name, app, lambda: story(cluster), patience=patience, **more)
            report.note(f"{name}: backlog drained {time.monotonic() - returned:.1f} s after the return")
            report.expect(not cluster.fallen(), f"{name}: {cluster.fallen()}")
            await judge(report, name, app, cluster, outage)


async def break_down(report: Report, name: str, weft: Client, broker: servers.Server, outage_seconds: float) -> Outage:
    """Freeze the broker for a third of the time, then kill it; look at the queue meanwhile."""
    began_at = now()
    await asyncio.to_thread(broker.pause)
    await asyncio.sleep(outage_seconds / 3)
    await asyncio.to_thread(broker.kill)
    report.expect(await is_shown_as_queued(weft), f"{name}: a run that waits is not shown as queued")
    await asyncio.sleep(outage_seconds * 2 / 3)
    return Outage(began_at, now())


async def is_shown_as_queued(weft: Client) -> bool:
    """Whether a run that no worker may serve is listed as waiting and counted."""
    waiting = NewRun(project="default", task="waiting", kind="noop", spec=RunSpec(spec={}, labels=("nobody",)))
    run_id = (await weft.runs.submit([waiting]))[0].run_id
    listed = [run.id for run in await weft.runs.find({"state": "queued", "task": "waiting"})]
    counted = (await weft.runs.counts())["ready"]
    await weft.runs.cancel(run_id)
    return listed == [run_id] and counted >= 1


async def judge(report: Report, name: str, app: App, cluster: Cluster, outage: Outage) -> None:
    told = story(cluster)
    accepted = len(told.acked) / len(told.tried)
    report.expect(accepted >= ACCEPTED, f"{name}: only {accepted:.2%} of the submits were accepted")
    submitted, ended = await app.db.read(lambda tx: during(tx, outage))
    report.note(f"{name}: away for {outage.seconds:.0f} s; {submitted} submitted and {ended} of them ended meanwhile")
    wanted = CLIENTS * RATE * outage.seconds / 2
    report.expect(submitted >= wanted, f"{name}: only {submitted} submits while the broker was away")
    report.expect(ended >= submitted / 2, f"{name}: only {ended} of {submitted} runs ended while the broker was away")


def during(tx: Transaction, outage: Outage) -> tuple[int, int]:
    """How many runs were submitted while the broker was away, and how many of those also ended then."""
    runs = schema.runs
    submitted = (runs.c.task == TASK, runs.c.queued_at.between(outage.began_at, outage.ended_at))
    ended = (*submitted, runs.c.finished_at <= outage.ended_at)
    return (
        int(tx.value(select(func.count()).where(*submitted))),
        int(tx.value(select(func.count()).where(*ended))),
    )


def never_poll() -> None:
    """Let workers look for work only when they hear a ring."""
    from weft.errors import BrokerDown
    from weft.workers.worker import Worker

    async def listen(self: Any, queues: list[str]) -> None:
        while True:
            try:
                if await self._broker.wait(queues, self._options.poll_seconds):
                    return
            except BrokerDown:
                await asyncio.sleep(self._options.poll_seconds)

    Worker._listen = listen  # type: ignore[method-assign]
