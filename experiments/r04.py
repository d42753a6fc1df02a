"""R04: the runs of a dead worker start again elsewhere within its lease and 5 seconds.

Four workers hold 40 shell runs that go on and on. One worker after another is killed with all that it started, killed
alone, or cut off from the database. Each of its runs gets one more attempt in time, and no run of anybody else does.
Red control: workers whose heart does not beat.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from sqlalchemy import select

from experiments.cable import Cable
from experiments.checker import drained
from experiments.cluster import Cluster, Role
from experiments.frozen import IN_A_HEARTBEAT
from experiments.gate import SCRIPTS, Gate, Try, allow_unsandboxed
from experiments.report import Report, Tally
from tests import servers
from tests.servers.processes import is_paused
from tests.waiting import eventually
from weft.app import App
from weft.clock import SECOND, Moment, now
from weft.db import schema
from weft.db.database import Transaction
from weft.db.server import IDLE_SECONDS
from weft.workers.heartbeat import HeartbeatMember, Heartbeats

FAULTS = ("family", "alone", "cut")
"""Kill a worker and all that it started; kill it alone, and replace it as its supervisor would; cut its link to the
database."""
FROZEN = "frozen"
"""Stop it in the middle of a heartbeat, when it holds locks of the database."""

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    faults: int
    lease_seconds: float
    heartbeat_seconds: float
    workers: int = 4
    runs: int = 40
    capacity: int = 14
    """Three workers can hold all the runs."""
    kinds: tuple[str, ...] = FAULTS
    killed_within_seconds: float = 10.0
    """How long what a worker had started may outlive its return: 5 s, twice that on a machine busy with other tests."""

    @property
    def allowed_seconds(self) -> float:
        """A client that is gone in the middle of a transaction keeps its locks for some time, whatever the lease is."""
        return max(self.lease_seconds, IDLE_SECONDS if {"cut", FROZEN} & set(self.kinds) else 0) + 5


REDUCED = Size(faults=9, lease_seconds=2.0, heartbeat_seconds=0.4)
DEFAULT_LEASE = Size(faults=1, lease_seconds=15.0, heartbeat_seconds=3.0, kinds=(FROZEN,))
FULL = Size(faults=100, lease_seconds=15.0, heartbeat_seconds=3.0, kinds=(*FAULTS, FROZEN), killed_within_seconds=5.0)
RED = Size(faults=1, lease_seconds=4.0, heartbeat_seconds=0.8, runs=8, kinds=("family",))
"""Few runs, and a lease in which all of them start: without heartbeats they soon lose it."""


def still_heart() -> None:
    """Red control: the heart of this worker does not beat."""

    async def _beat_once(self: Heartbeats, member: HeartbeatMember) -> bool:
        return True

    Heartbeats._beat_once = _beat_once  # type: ignore[method-assign]


@dataclass(slots=True)
class Seen:
    """What the faults did."""

    hits: Counter[int] = field(default_factory=Counter)
    """How often the worker of each run was struck."""
    delays: list[float] = field(default_factory=list)
    stuck: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    overlap: Counter[str] = field(default_factory=Counter)
    """The longest time, in samples, that two attempts of one run were alive, for each fault."""
    lingering: list[float] = field(default_factory=list)
    """How long what a worker had started lived on after the worker was back."""


class Scene:
    """Workers under faults on one database."""

    def __init__(self, cluster: Cluster, app: App, size: Size, cable: Cable, red: str | None) -> None:
        self._cluster, self._app, self._size, self._cable = cluster, app, size, cable
        self.gate, self.seen = Gate(cluster.folder), Seen()
        self._fault = ""
        cluster.serve("serve")
        names = [f"w{number}" for number in range(1, size.workers)]
        self._workers = [cluster.worker(name, red=red or "frozen:freezable") for name in names]
        self._remote = self._start_remote(red)

    def _start_remote(self, red: str | None) -> Role:
        """A worker at the other end of the cable."""
        far = self._cluster.config.database.replace("127.0.0.1:", f"{self._cable.host}:").split(":")
        url = ":".join([*far[:2], f"{self._cable.port}/{far[-1].split('/')[1]}"])
        red_words = ["experiments.red", red] if red else []
        command = [*self._cable.prefix, sys.executable, "-m", *red_words, "weft", "worker", "--name", "remote"]
        role = Role("remote", command, self._cluster.environment(database=url), self._cluster.folder)
        self._cluster.roles["remote"] = role
        role.start()
        return role

    async def go_on(self) -> None:
        """Strike one worker after another; then let all runs end."""
        await self._cluster.ready(self._app)
        await allow_unsandboxed(self._app)
        await eventually(lambda: self._has_joined(self._remote), 60)
        runs = [self.gate.new_run(script) for script in islice(cycle(SCRIPTS), self._size.runs)]
        await self._app.runs.submit(runs)
        await eventually(self._all_run, 60)
        sampling = asyncio.create_task(self._sample_forever())
        try:
            for fault in islice(cycle(self._size.kinds), self._size.faults):
                await self._strike(fault)
        finally:
            sampling.cancel()
            self.gate.open()

    async def _all_run(self) -> bool:
        return (await self._app.runs.counts()).get("running", 0) == self._size.runs

    async def _has_joined(self, role: Role) -> bool:
        return any(one.pid == role.pid and one.state != "offline" for one in await self._app.workers.all())

    async def _strike(self, fault: str) -> None:
        victim, held = await self._victim(fault)
        fault = self._fault = "family" if fault == "cut" and victim is not self._remote else fault
        struck = now()
        match fault:
            case "family":
                victim.kill_family()
            case "alone":
                victim.kill()
                victim.start()
            case "cut":
                self._cable.cut()
            case "frozen":
                victim.send(IN_A_HEARTBEAT)
                await eventually(lambda: is_paused(victim.pid))
        self.seen.faults[fault] += 1
        self.seen.hits.update(run for run, _ in held)
        await self._await_restart(held, struck)
        if fault in ("cut", FROZEN):
            await self._bring_back(victim, held)
        elif fault == "family":
            victim.start()
        await eventually(lambda: self._has_joined(victim), 60)

    async def _victim(self, fault: str) -> tuple[Role, set[Try]]:
        """A worker that holds runs, and which; the one behind the cable if that is to be cut and it holds any."""
        holding = [(role, held) for role in [*self._workers, self._remote] if (held := await self._held(role))]
        remote = [(role, held) for role, held in holding if role is self._remote]
        near = [(role, held) for role, held in holding if role is not self._remote]
        return random.choice(remote if (fault == "cut" and remote) or not near else near)

    async def _held(self, role: Role) -> set[Try]:
        runs, workers = schema.runs, schema.workers
        mine = select(workers.c.id).where(workers.c.pid == role.pid)
        query = select(runs.c.id, runs.c.attempt).where(runs.c.lease_worker.in_(mine))
        return {(row.id, row.attempt) for row in await self._app.db.read(lambda tx: tx.rows(query))}

    async def _await_restart(self, held: set[Try], struck: Moment) -> None:
        """Note when the next attempt of each run began; a run that has none after a long time is stuck."""
        next_tries = {(run, attempt + 1) for run, attempt in held}
        found: dict[Try, Moment] = {}

        async def all_started() -> bool:
            found.update(await self._app.db.read(_starts))
            return next_tries <= found.keys()

        try:
            await eventually(all_started, 2 * self._size.allowed_seconds)
        except AssertionError:
            self.seen.stuck += len(next_tries - found.keys())
        self.seen.delays += [(found[one] - struck) / SECOND for one in next_tries & found.keys()]

    async def _bring_back(self, victim: Role, held: set[Try]) -> None:
        """Leave the worker alone for another while, then see how long its old attempts outlive its return."""
        await asyncio.sleep(self._size.lease_seconds * random.uniform(0.5, 2))
        self._cable.mend()
        victim.resume()
        returned = time.monotonic()
        try:
            await eventually(lambda: not held & self.gate.waiting().keys(), 3 * self._size.killed_within_seconds)
        except AssertionError:
            pass  # the time alone tells it
        self.seen.lingering.append(time.monotonic() - returned)

    async def _sample_forever(self) -> None:
        """Count for how long a run has two attempts alive at once."""
        doubled: Counter[int] = Counter()
        while True:
            alive = Counter(run for run, _ in await asyncio.to_thread(self.gate.waiting))
            doubled = Counter({run: doubled[run] + 1 for run, tries in alive.items() if tries > 1})
            self.seen.overlap[self._fault] = max(self.seen.overlap[self._fault], *doubled.values(), 0)
            await asyncio.sleep(SAMPLE_SECONDS)


def _starts(tx: Transaction) -> dict[Try, Moment]:
    """When each attempt began."""
    runs, attempts = schema.runs, schema.attempts
    rows = tx.rows(select(attempts.c.run_id, attempts.c.attempt, attempts.c.started_at))
    rows = [*rows, *tx.rows(select(runs.c.id, runs.c.attempt, runs.c.started_at).where(runs.c.state != "queued"))]
    return {(run, attempt): started for run, attempt, started in rows}


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R04")
    with servers.postgresql() as server:
        if full or red:
            await observe(report, server, FULL if full else RED, red="r04:still_heart" if red else None)
        else:
            await asyncio.gather(observe(report, server, REDUCED), observe(report, server, DEFAULT_LEASE))
    return report


async def observe(report: Report, server: servers.Server, size: Size, red: str | None = None) -> None:
    began, name = time.monotonic(), f"lease {size.lease_seconds:g} s"
    async with opened(server, size) as (cluster, app, cable):
        scene = Scene(cluster, app, size, cable, red)
        await scene.go_on()
        report.expect(await drained(app, 30), f"{name}: runs did not end when they were let go")
        tally = await app.db.read(lambda tx: _tally(tx, scene.seen, began))
    report.add(name, tally)
    _judge(report, name, size, scene.seen)


@asynccontextmanager
async def opened(server: servers.Server, size: Size) -> AsyncIterator[tuple[Cluster, App, Cable]]:
    beats: dict[str, Any] = {"lease_seconds": size.lease_seconds, "heartbeat_seconds": size.heartbeat_seconds}
    async with Cable(server.port) as cable:
        with Cluster(database=server.new_database(), capacity=size.capacity, **beats) as cluster:
            async with cluster.app() as app:
                yield cluster, app, cable


def _tally(tx: Transaction, seen: Seen, began: float) -> Tally:
    runs = tx.rows(select(schema.runs.c.id, schema.runs.c.state, schema.runs.c.attempt))
    return Tally(
        attempted=len(runs),
        acknowledged=len(runs),
        ok=sum(row.state == "succeeded" and row.attempt == 1 + seen.hits[row.id] for row in runs),
        lost=sum(row.state == "failed" for row in runs) + seen.stuck,
        duplicated=sum(row.attempt > 1 + seen.hits[row.id] for row in runs),
        recovered=seen.hits.total(),
        unknown=sum(row.state in ("queued", "running") for row in runs),
        kills=seen.faults.total(),
        seconds=time.monotonic() - began,
    )


def _judge(report: Report, name: str, size: Size, seen: Seen) -> None:
    worst = max(seen.delays, default=0.0)
    report.note(f"{name}: {len(seen.delays)} runs of struck workers began again within {worst:.1f} s")
    overlap = {fault: f"{samples * SAMPLE_SECONDS:.1f} s" for fault, samples in seen.overlap.items() if samples}
    report.note(f"{name}: two attempts of a run were alive at once for at most: {overlap or 'never'}")
    allowed = size.allowed_seconds
    report.expect(worst <= allowed, f"{name}: a run began again after {worst:.1f} s, {allowed:g} s are allowed")
    report.expect(bool(seen.delays), f"{name}: no worker that was struck held a run")
    lingering = max(seen.lingering, default=0.0)
    report.note(f"{name}: what a worker had started outlived its return by {lingering:.1f} s")
    report.expect(lingering <= size.killed_within_seconds, f"{name}: old attempts lived on for {lingering:.1f} s")
