"""R05: a zombie cannot write. A worker that was frozen for longer than its lease changes nothing when it wakes.

Workers are stopped (SIGSTOP) for one and a half to four leases and woken again, on PostgreSQL also in the middle of a
transaction. What they then say of runs that are others' by now is refused, no run ends twice, and what they had started
is killed within 5 seconds. Red control: endings and logs are taken from whoever brings them.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import msgspec
from sqlalchemy import func, select

from experiments.checker import drained
from experiments.cluster import Cluster, Role
from experiments.frozen import IN_A_REPORT, freezable
from experiments.gate import PATIENT, STUBBORN, WITH_CHILD, Gate, Try, allow_unsandboxed
from experiments.report import Report, Tally
from tests import servers
from tests.servers.processes import is_paused
from tests.waiting import eventually
from weft.app import App
from weft.db import schema
from weft.db.database import Transaction
from weft.runs import lease_store
from weft.runs.endings import Endings, WorkerEndings
from weft.runs.leases import Leases
from weft.runs.model import NewRun, RunSpec
from weft.workers.protocol import HeartbeatReply
from weft.workers.worker import Worker

TALK = """lines=$PARAM_LINES
[ "$WEFT_ATTEMPT" -eq 1 ] || lines=$((lines + 15))
for i in $(seq $lines); do echo "line $i"; sleep 0.3; done
echo "attempt $WEFT_ATTEMPT"
"""
"""A second attempt takes longer, so that a zombie that tells the end of the first finds it under way."""

TALKING_AT_LEAST = 3
"""How many talking runs a worker holds when it is frozen, so that it has something to say when it wakes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    pauses: int
    """On each database."""
    lease_seconds: float
    workers: int = 3
    killed_within_seconds: float = 10.0
    """How long what a worker had started may outlive its return: 5 s, twice that on a machine busy with other tests."""
    capacity: int = 8
    """Of each worker; with as many runs as places, each of them has something to say when it wakes."""
    waiting: int = 4
    talking: int = 20


REDUCED = Size(pauses=6, lease_seconds=1.5)
FULL = Size(pauses=50, lease_seconds=5.0, killed_within_seconds=5.0)
RED = Size(pauses=3, lease_seconds=1.5)


def believing() -> None:
    """Red control: whoever brings an ending or a log is believed, and workers are slow to hear that they are lost."""
    freezable()
    obey = Worker._obey

    def finish(self: Endings, tx: Transaction, told: Sequence[WorkerEndings]) -> list[list[bool]]:
        rows = lease_store.held(tx, [ending.run_id for _, endings in told for ending in endings])
        known = [ending for _, endings in told for ending in endings if ending.run_id in rows]
        self.end(tx, [msgspec.structs.replace(e, attempt=rows[e.run_id].attempt) for e in known], rows)
        return [[ending.run_id in rows for ending in endings] for _, endings in told]

    async def ship(self: Leases, worker_id: int, chunks: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
        room: dict[tuple[int, int], int] = defaultdict(lambda: sys.maxsize)
        await self._db.transact(lambda tx: lease_store.add_log(tx, chunks, room))
        return set()

    def _obey(self: Worker, orders: HeartbeatReply) -> None:
        if orders.lost:
            self._heartbeats.remove(self._id)
            asyncio.get_running_loop().call_later(1, obey, self, orders)
        else:
            obey(self, orders)

    Endings.finish, Leases.ship, Worker._obey = finish, ship, _obey  # type: ignore[method-assign]


@dataclass(slots=True)
class Seen:
    """What the pauses did."""

    pauses: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    """How many attempts the frozen workers lost."""
    lingering: list[float] = field(default_factory=list)
    """How long what a worker had started lived on after it woke."""
    logs: Counter[Try] = field(default_factory=Counter)
    """How many pieces of log there were of each lost attempt, while its worker was still frozen."""
    stalls: list[float] = field(default_factory=list)
    """For how long nobody could write because a frozen worker held the database."""


class Scene:
    """Workers that are frozen and woken on one database."""

    def __init__(self, cluster: Cluster, app: App, size: Size, red: str | None) -> None:
        self._cluster, self._app, self._size = cluster, app, size
        self._is_server = not cluster.config.database_url.startswith("sqlite")
        self.gate, self.seen = Gate(cluster.folder), Seen()
        cluster.serve("serve")
        self._workers = [cluster.worker(f"w{n}", red=red or "frozen:freezable") for n in range(size.workers)]

    async def go_on(self) -> None:
        """Freeze one worker after another while others work; then let all runs end."""
        await self._cluster.ready(self._app)
        await allow_unsandboxed(self._app)
        scripts = islice(cycle((WITH_CHILD, STUBBORN)), self._size.waiting)
        await self._app.runs.submit([self.gate.new_run(script) for script in scripts])
        feeding = asyncio.create_task(self._feed())
        try:
            ways = ("freeze", "freeze half-way") if self._is_server else ("freeze",)
            for way in islice(cycle(ways), self._size.pauses):
                await self._pause(way)
        finally:
            feeding.cancel()
            self.gate.open()

    async def _feed(self) -> None:
        """See to it that there is always a run that talks."""
        while True:
            live = sum((await self._app.runs.counts()).values())
            if missing := self._size.waiting + self._size.talking - live:
                await self._app.runs.submit([talker() for _ in range(max(missing, 0))])
            await asyncio.sleep(0.1)

    async def _pause(self, way: str) -> None:
        victim, held = random.choice(await eventually(self._holding))
        self.seen.pauses[way] += 1
        victim.send(IN_A_REPORT if way == "freeze half-way" else signal.SIGSTOP)
        await eventually(lambda: is_paused(victim.pid))
        probing = asyncio.create_task(self._probe())
        await asyncio.sleep(self._size.lease_seconds * random.uniform(1.5, 4))
        self.seen.logs |= await self._app.db.read(_logs_of_lost)
        victim.resume()
        await probing
        await self._await_burial(held)

    async def _holding(self) -> list[tuple[Role, set[Try]]]:
        """The workers that hold a waiting run, and which; each of them holds some that talk too."""
        held = [(role, await self._held(role, "wait"), await self._held(role, "talk")) for role in self._workers]
        return [(role, waiting) for role, waiting, talking in held if waiting and len(talking) >= TALKING_AT_LEAST]

    async def _held(self, role: Role, task: str) -> set[Try]:
        runs, workers = schema.runs, schema.workers
        mine = select(workers.c.id).where(workers.c.pid == role.pid)
        query = select(runs.c.id, runs.c.attempt).where(runs.c.lease_worker.in_(mine), runs.c.task == task)
        return {(row.id, row.attempt) for row in await self._app.db.read(lambda tx: tx.rows(query))}

    async def _probe(self) -> None:
        """Write something, and note how long that took."""
        began = time.monotonic()
        await self._app.runs.submit([talker()])
        took = time.monotonic() - began
        if took > self._size.lease_seconds / 2:
            self.seen.stalls.append(took)

    async def _await_burial(self, held: set[Try]) -> None:
        """Wait until what the woken worker no longer holds is gone."""
        woken = time.monotonic()
        tries = await self._app.db.read(lambda tx: dict(tx.rows(select(schema.runs.c.id, schema.runs.c.attempt))))
        lost = {(run, attempt) for run, attempt in held if tries[run] > attempt}
        self.seen.taken += len(lost)
        try:
            await eventually(lambda: not lost & self.gate.waiting().keys(), 3 * self._size.killed_within_seconds)
        except AssertionError:
            pass  # the time alone tells it
        self.seen.lingering.append(time.monotonic() - woken)


def talker() -> NewRun:
    spec = RunSpec(spec={"script": TALK}, params={"lines": random.randint(1, 8)}, retry=PATIENT)
    return NewRun(project="default", task="talk", kind="shell", spec=spec)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R05")
    size = FULL if full else RED if red else REDUCED
    with servers.postgresql() as server:
        if red:
            await observe(report, "PostgreSQL", size, server.new_database(), red="r05:believing")
        else:
            on_server = observe(report, "PostgreSQL", size, server.new_database())
            await asyncio.gather(on_server, observe(report, "SQLite", size))
    return report


async def observe(report: Report, name: str, size: Size, database: str = "", red: str | None = None) -> None:
    began = time.monotonic()
    beats: dict[str, Any] = {"lease_seconds": size.lease_seconds, "heartbeat_seconds": size.lease_seconds / 5}
    with Cluster(database=database, capacity=size.capacity, **beats) as cluster:
        async with cluster.app() as app:
            scene = Scene(cluster, app, size, red)
            await scene.go_on()
            report.expect(await drained(app, 60), f"{name}: runs did not end when they were let go")
            stale, tally = await app.db.read(lambda tx: _check(tx, scene.seen, began))
    report.add(name, tally)
    report.expect(not stale, f"{name}: {stale} writes of attempts that had been taken away were accepted")
    _judge(report, name, size, scene.seen)


def _check(tx: Transaction, seen: Seen, began: float) -> tuple[int, Tally]:
    """How many stale writes there are, and what became of the runs."""
    runs, events, attempts = schema.runs, schema.events, schema.attempts
    rows = tx.rows(select(runs.c.id, runs.c.state, runs.c.attempt, runs.c.result))
    ended = select(events.c.run_id, func.count()).where(events.c.kind == "run_finished").group_by(events.c.run_id)
    ends: dict[int, int] = dict(tx.rows(ended))
    lost = tx.value(select(func.count()).select_from(attempts).where(attempts.c.outcome == "lost"))
    tally = Tally(
        attempted=len(rows),
        acknowledged=len(rows),
        ok=sum(row.state == "succeeded" and ends.get(row.id) == 1 for row in rows),
        lost=sum(row.state == "failed" for row in rows),
        duplicated=sum(count > 1 for count in ends.values()),
        recovered=int(lost),
        unknown=sum(row.state in ("queued", "running") for row in rows),
        kills=seen.pauses.total(),
        seconds=time.monotonic() - began,
    )
    logs = _logs_of_lost(tx)
    return sum(_is_stale(row) for row in rows) + sum(logs[one] - count for one, count in seen.logs.items()), tally


def _is_stale(row: Any) -> bool:
    """Whether a run ended with the words of another attempt than its last."""
    last_line = msgspec.json.decode(row.result)["last_line"] if row.result else ""
    return bool(row.state == "succeeded" and last_line != f"attempt {row.attempt}")


def _logs_of_lost(tx: Transaction) -> Counter[Try]:
    """How many pieces of log there are of each attempt that was taken away."""
    chunks, attempts = schema.log_chunks, schema.attempts
    same = (chunks.c.run_id == attempts.c.run_id) & (chunks.c.attempt == attempts.c.attempt)
    query = select(chunks.c.run_id, chunks.c.attempt).join(attempts, same).where(attempts.c.outcome == "lost")
    return Counter((row.run_id, row.attempt) for row in tx.rows(query))


def _judge(report: Report, name: str, size: Size, seen: Seen) -> None:
    worst = max(seen.lingering, default=0.0)
    report.note(f"{name}: {dict(seen.pauses)} took {seen.taken} waiting runs; what had run them died in {worst:.1f} s")
    report.expect(seen.taken > 0, f"{name}: no frozen worker lost a run")
    report.expect(worst <= size.killed_within_seconds, f"{name}: what a zombie had started lived on for {worst:.1f} s")
    stalls = f"{len(seen.stalls)} of {seen.pauses.total()} pauses, for {max(seen.stalls, default=0):.1f} s at most"
    report.note(f"{name}: nobody could write during {stalls}")
