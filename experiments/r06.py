"""R06: the supervisor dies, the run does not vanish.

A worker with four spiders is killed with SIGKILL, alone, and started again. Two of the spiders are forked from a zygote
and two were started cold; one of each kind has a child in a session of its own. Five seconds later nothing of the dead
worker may run, there may be no more spiders than places, none that the worker does not hold, and each run must go on
as the same attempt or the next. What the dead spiders had yielded must be stored. Red control: no parent-death signal,
and no sweep by the next worker.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from sqlalchemy import select

from experiments.checker import drained
from experiments.cluster import Cluster, Role
from experiments.crawling import COLD, PROJECT, Field, Try, crawl, deploy
from experiments.meanwhile import meanwhile
from experiments.r12 import GONE_SECONDS, settled, take
from experiments.report import Report
from tests.waiting import eventually
from weft.app import App
from weft.db import schema

RED = "r06:leave_them"
PLACES = 4
PAUSE = 0.2
LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    kills: int
    gone_seconds: float
    """How long what a dead worker had started may live on."""
    back_seconds: float
    """How long after that all runs may take to be at work again."""
    settled_seconds: float = GONE_SECONDS


FULL = Size(kills=50, gone_seconds=5.0, back_seconds=30.0)
# A machine that tests may have much else to do.
REDUCED = Size(kills=5, gone_seconds=10.0, back_seconds=60.0)
SHOWING = Size(kills=1, gone_seconds=3.0, back_seconds=10.0, settled_seconds=1.0)


@dataclass(slots=True)
class Seen:
    """What the kills did."""

    lingering: list[float] = field(default_factory=list)
    """How long the last process of a dead worker lived on."""
    back: list[float] = field(default_factory=list)
    """How long it took until all runs were at work again."""
    crowds: list[int] = field(default_factory=list)
    """How many spiders there were where there were too many."""
    untracked: list[Try] = field(default_factory=list)
    """Attempts that ran though no worker held them."""


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R06")
    size = SHOWING if red else FULL if full else REDUCED
    with Cluster(capacity=PLACES) as cluster:
        cluster.serve()
        worker = cluster.worker("w1", red=RED if red else None)
        async with cluster.app() as app:
            await cluster.ready(app)
            await deploy(app, PROJECT, COLD)
            await observe(report, cluster, app, worker, size)
            report.expect(not cluster.fallen(), f"{cluster.fallen()}")
    return report


async def observe(report: Report, cluster: Cluster, app: App, worker: Role, size: Size) -> None:
    began, at_work, seen = time.monotonic(), Field(cluster), Seen()
    kinds = [(PROJECT, False), (PROJECT, True), (COLD, False), (COLD, True)]
    await app.runs.submit([crawl(pause=PAUSE, child=child, of=project) for project, child in kinds])
    async with meanwhile(at_work.follow):
        for _ in range(size.kills):
            await kill(cluster, app, worker, at_work, seen, size)
        async with meanwhile(lambda: let_end(at_work)):
            report.expect(await drained(app, PATIENCE_SECONDS), f"runs go on after {PATIENCE_SECONDS:g} s")
        await settled(report, "4 spiders", at_work, size.settled_seconds)
    await take(report, "4 spiders", app, at_work, kills=size.kills, seconds=time.monotonic() - began)
    judge(report, seen, size)


async def kill(cluster: Cluster, app: App, worker: Role, at_work: Field, seen: Seen, size: Size) -> None:
    """Kill the worker once all spiders have yielded something, and look at what becomes of them."""
    await eventually(lambda: is_at_work(at_work), PATIENCE_SECONDS)
    orphans = at_work.spiders()
    worker.kill()
    died = time.monotonic()
    worker.start()
    await all_gone(orphans, at_work, size.gone_seconds)
    seen.lingering.append(time.monotonic() - died)
    until = time.monotonic() + size.back_seconds
    while not is_at_work(at_work, orphans) and time.monotonic() < until:
        if len(set(at_work.spiders().values())) > PLACES:
            seen.crowds.append(len(set(at_work.spiders().values())))
        await asyncio.sleep(LOOK_SECONDS)
    seen.back.append(time.monotonic() - died)
    running = set(at_work.spiders().values())
    seen.untracked += sorted(running - await held(app, worker))


async def all_gone(orphans: dict[int, Try], at_work: Field, patience: float) -> None:
    """Wait for the end of what a dead worker had started; how long that took tells whether it came."""
    try:
        await eventually(lambda: not orphans.keys() & at_work.spiders().keys(), patience)
    except AssertionError:
        pass


def is_at_work(at_work: Field, orphans: dict[int, Try] | None = None) -> bool:
    """Whether four runs have a spider that has yielded something, other than ``orphans``."""
    noted = at_work.noted()
    fresh = {place for pid, place in at_work.spiders().items() if pid not in (orphans or ())}
    return len({run for run, attempt in fresh if noted.get((run, attempt))}) == PLACES


async def held(app: App, worker: Role) -> set[Try]:
    """The attempts that the worker holds which lives now."""
    runs, workers = schema.runs, schema.workers
    mine = select(workers.c.id).where(workers.c.pid == worker.pid)
    query = select(runs.c.id, runs.c.attempt).where(runs.c.lease_worker.in_(mine))
    return {(row.id, row.attempt) for row in await app.db.read(lambda tx: tx.rows(query))}


async def let_end(at_work: Field) -> None:
    while True:
        at_work.enough()
        await asyncio.sleep(LOOK_SECONDS)


def judge(report: Report, seen: Seen, size: Size) -> None:
    slowest, back = max(seen.lingering), max(seen.back)
    report.note(
        f"the last process of a dead worker was gone after {slowest:.2f} s, all runs were back after {back:.1f} s"
    )
    report.expect(slowest < size.gone_seconds, f"processes of a dead worker ran for {slowest:.1f} s")
    limit = size.gone_seconds + size.back_seconds
    report.expect(back < limit, f"runs were not at work again after {back:.1f} s")
    report.expect(not seen.crowds, f"there were {max(seen.crowds, default=0)} spiders for {PLACES} places")
    report.expect(not seen.untracked, f"attempts ran that nobody held: {seen.untracked[:5]}")


def leave_them() -> None:
    """Red control: spiders do not die with their worker, and the next one does not look for them."""
    import weft.cli.worker
    from weft.adapters.executors import _process
    from weft.adapters.executors._zygote import Unready
    from weft.adapters.executors.spider import SpiderExecutor

    async def forked(*_: object) -> None:
        raise Unready("a zygote ends its forks when its worker is gone")

    weft.cli.worker.sweep = lambda folder: 0  # type: ignore[attr-defined]
    _process.dying_with_parent = lambda: ()  # type: ignore[assignment]
    SpiderExecutor._forked = forked  # type: ignore[method-assign,assignment]
