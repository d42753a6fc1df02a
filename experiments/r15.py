"""R15: a schedule fires exactly once per tick, however many schedulers there are and whatever happens to their leader.

Five schedulers on a clock that runs 60 times as fast. Every few seconds their leader is killed, frozen at any moment,
or frozen between reading what is due and writing it; PostgreSQL is restarted too. Which ticks ought to be there is
worked out by ``almanac.py``, which shares nothing with weft. Red control: the leader lease is all that there is.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle

from sqlalchemy import func, select, text

from experiments import almanac
from experiments.cluster import Cluster, Role
from experiments.report import Report, Tally
from experiments.ticking import FastClock
from tests import servers
from tests.servers.processes import is_paused
from tests.waiting import eventually
from weft.app import App
from weft.clock import SECOND, Moment, moment, seconds
from weft.db import schema
from weft.db.database import Transaction
from weft.errors import DatabaseDown
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule

START = moment(datetime(2026, 6, 1, 5, 30, tzinfo=UTC))
SPEED = 60
OVERDUE = seconds(0.25 * SPEED)
"""A quarter of a second of the machine's own clock."""
PATIENCE_SECONDS = 60.0
CALM_AT_LAST_SECONDS = 4.0
"""Longer than a tick may be late: what is late without a fault would be seen there."""
LATE_SECONDS, LATE_IN_FAULT_SECONDS = 2.0, 15.0
SHORT_SECONDS = (1, 5, 10, 30)
CRONS = ("*/7 * * * *", "13 * * * *", "0,30 6-9 * * *", "*/2 6 * * *", "59 5 * * *")
ZONES = ("UTC", "Asia/Kolkata", "America/New_York")
"""None of them changes its clocks in the simulated time; what such a change does is another promise (R16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    simulated_seconds: int
    patience_seconds: float
    """How long a leader may be silent."""
    calm_seconds: float
    """How long all goes well between two faults, at most."""
    schedulers: int = 5
    schedules: int = 300


REDUCED = Size(simulated_seconds=1500, patience_seconds=1.0, calm_seconds=1.5)
FULL = Size(simulated_seconds=86_400, patience_seconds=5.0, calm_seconds=4.0)
RED = Size(simulated_seconds=600, patience_seconds=1.0, calm_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Planned:
    """A task, and when it ought to tick between two moments."""

    task: Task
    ticks: Callable[[Moment, Moment], Iterator[Moment]]


def plan(count: int) -> list[Planned]:
    """Schedules from a second to an hour: the shortest once each, crons, and the others from a minute upwards."""
    planned = [_every(number, period) for number, period in enumerate(SHORT_SECONDS)]
    planned += [
        _cron(f"c{number}", line, zone) for number, (line, zone) in enumerate((c, z) for c in CRONS for z in ZONES)
    ]
    others = count - len(planned)
    return planned + [_every(len(planned) + n, round(60 * 60 ** (n / (others - 1)))) for n in range(others)]


def _every(number: int, period: int) -> Planned:
    first = START + (number * 997 % period) * SECOND
    task = _task(f"e{number}", every_seconds=period, start_at=first)
    return Planned(task, lambda after, until: almanac.interval(first, period, after, until))


def _cron(name: str, line: str, zone: str) -> Planned:
    return Planned(_task(name, cron=line, zone=zone), lambda after, until: almanac.cron(line, zone, after, until))


def _task(name: str, **when: object) -> Task:
    schedule = Schedule(**when, misfire="all", catch_up_cap=10_000, overlap="allow")  # type: ignore[arg-type]
    return Task(name=name, kind="noop", schedule=schedule)


class Scene:
    """Schedulers on one database, and the faults that they meet."""

    def __init__(self, cluster: Cluster, app: App, size: Size, server: servers.Server | None, red: str | None) -> None:
        self.clock = FastClock.from_now(START, SPEED)
        self._app, self._size, self._server = app, size, server
        command = ["experiments.ticking", str(self.clock), str(size.patience_seconds)]
        self._roles = [cluster.start(f"scheduler-{number}", command, red=red) for number in range(size.schedulers)]
        self.troubled: list[tuple[Moment, Moment]] = []
        """From when to when a fault was not overcome."""
        self.faults: Counter[str] = Counter()

    async def go_on(self, simulated_seconds: int) -> Moment:
        """One fault after another for so long; return a moment before which all that was due has had its time."""
        await self._overcome(START)
        began = self.clock()
        end = began + simulated_seconds * SECOND
        restarts = [began + (end - began) * third // 3 for third in (1, 2)] if self._server else []
        faults = cycle(("freeze half-way", "kill", "freeze"))
        while self.clock() < end:
            await asyncio.sleep(random.uniform(0.2, self._size.calm_seconds))
            if restarts and self.clock() > restarts[0]:
                restarts.pop(0)
                await self._suffer("restart")
            else:
                await self._suffer(next(faults))
        await asyncio.sleep(CALM_AT_LAST_SECONDS)
        end = self.clock()
        await asyncio.sleep(LATE_SECONDS)
        return end

    async def _suffer(self, fault: str) -> None:
        began = self.clock()
        leader = await self._leader()
        self.faults[fault] += 1
        if fault == "kill":
            leader.kill()
            leader.start()
        elif fault == "restart":
            await asyncio.to_thread(self._restart)
        else:
            await self._freeze(leader, signal.SIGUSR1 if fault == "freeze half-way" else signal.SIGSTOP)
        await self._overcome(began)

    def _restart(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.start()

    async def _freeze(self, leader: Role, how: signal.Signals) -> None:
        """Stop the leader for longer than the others wait for it, most of the time."""
        leader.send(how)
        await eventually(lambda: is_paused(leader.pid))
        await asyncio.sleep(self._size.patience_seconds * random.uniform(1.5, 3))
        leader.resume()

    async def _overcome(self, began: Moment) -> None:
        """Wait until somebody leads and nothing is overdue; a tick may have been under way when the fault came."""
        await self._leader()
        await eventually(self._is_on_time, timeout=PATIENCE_SECONDS)
        self.troubled.append((began - OVERDUE, self.clock()))

    async def _leader(self) -> Role:
        found = await eventually(self._living_leader, timeout=PATIENCE_SECONDS)
        assert isinstance(found, Role)
        return found

    async def _living_leader(self) -> Role | None:
        holder = await self._read(lambda tx: tx.value(select(schema.leaders.c.holder)))
        pid = int(str(holder).split(":")[1]) if holder else 0
        return next((role for role in self._roles if role.pid == pid), None)

    async def _is_on_time(self) -> bool:
        first = await self._read(lambda tx: tx.value(select(func.min(schema.schedules.c.next_fire_at))))
        return isinstance(first, int) and first > self.clock() - OVERDUE

    async def _read(self, query: Callable[[Transaction], object]) -> object:
        try:
            return await self._app.db.read(query)
        except DatabaseDown:
            return None


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R15")
    size = FULL if full else RED if red else REDUCED
    with servers.postgresql() as server, Cluster(database=server.new_database()) as cluster, Cluster() as embedded:
        if red:  # not on SQLite: it has one writer, frozen or not, so there the red control could not fail
            await observe(report, "PostgreSQL", cluster, size, None, red="ticking:trust_the_leader")
        else:
            on_server = observe(report, "PostgreSQL", cluster, size, server)
            await asyncio.gather(on_server, observe(report, "SQLite", embedded, size, None))
    return report


async def observe(
    report: Report, name: str, cluster: Cluster, size: Size, server: servers.Server | None, red: str | None = None
) -> None:
    began, planned = time.monotonic(), plan(size.schedules)
    async with cluster.app(lambda: START) as app:
        await app.tasks.apply(DesiredState(tuple(each.task for each in planned)))
        if red:
            await app.db.transact(lambda tx: tx.execute(text("ALTER TABLE ticks DROP CONSTRAINT ticks_pkey")))
        scene = Scene(cluster, app, size, server, red)
        end = await scene.go_on(size.simulated_seconds)
        found = await app.db.read(lambda tx: Found.of(tx, planned, end))
    tally = found.tally(kills=scene.faults.total(), seconds=time.monotonic() - began)
    report.add(name, tally)
    report.expect(bool(scene.faults["freeze half-way"]), f"{name}: no leader was frozen half-way")
    _judge_delays(report, name, found.delays, scene.troubled)


@dataclass(frozen=True, slots=True)
class Found:
    """How often each tick was kept and queued, beside those that the almanac expects."""

    expected: set[tuple[int, Moment]]
    kept: Counter[tuple[int, Moment]]
    queued: Counter[tuple[int, Moment]]
    delays: list[tuple[Moment, float]]
    """When a tick was due, and after how many seconds of the machine's own clock its run was queued."""

    @classmethod
    def of(cls, tx: Transaction, planned: list[Planned], end: Moment) -> Found:
        ticks, runs = schema.ticks, schema.runs
        ids: dict[str, int] = dict(tx.rows(select(schema.tasks.c.name, schema.tasks.c.id)))
        kept = tx.rows(select(ticks.c.task_id, ticks.c.fire_at).where(ticks.c.fire_at <= end))
        queued = tx.rows(select(runs.c.task_id, runs.c.fire_at, runs.c.queued_at).where(runs.c.fire_at <= end))
        return cls(
            expected={(ids[each.task.name], at) for each in planned for at in each.ticks(START, end)},
            kept=Counter((row.task_id, row.fire_at) for row in kept),
            queued=Counter((row.task_id, row.fire_at) for row in queued),
            delays=[(row.fire_at, (row.queued_at - row.fire_at) / SECOND / SPEED) for row in queued],
        )

    def tally(self, **more: float) -> Tally:
        found = self.kept | self.queued
        return Tally(
            attempted=len(self.expected),
            acknowledged=self.kept.total(),
            ok=sum(self.kept[tick] == self.queued[tick] == 1 for tick in self.expected),
            lost=sum(not self.kept[tick] or not self.queued[tick] for tick in self.expected),
            duplicated=sum(count > 1 for count in found.values()),
            unknown=len(found.keys() - self.expected),
            **more,  # type: ignore[arg-type]
        )


def _judge_delays(
    report: Report, name: str, delays: list[tuple[Moment, float]], troubled: list[tuple[Moment, Moment]]
) -> None:
    """A tick that a fault met while it waited has waited without one until then, and with one afterwards."""
    calm, failover = [0.0], [0.0]
    for at, delay in delays:
        if any(began <= at <= ended for began, ended in troubled):
            failover.append(delay)
            continue
        until_fault = min((began - at for began, _ in troubled if began > at), default=10**18) / SECOND / SPEED
        calm.append(min(delay, until_fault))
        if delay > until_fault:
            failover.append(delay)
    p99, most = sorted(calm)[int(0.99 * (len(calm) - 1))], max(failover)
    report.note(f"{name}: ticks were late by {p99:.2f} s (p99), by {most:.1f} s at most while a fault lasted")
    late, in_fault = LATE_SECONDS, LATE_IN_FAULT_SECONDS
    report.expect(p99 <= late, f"{name}: ticks were late by {p99:.2f} s (p99), {late:g} s are allowed")
    report.expect(most <= in_fault, f"{name}: a fault delayed a tick by {most:.1f} s, {in_fault:g} s are allowed")
