"""R09: a poison run ends as failed after its allowed attempts, with back-off between them, and blocks nobody.

One in a hundred runs crashes, exits with 1, hangs until its timeout, or kills the worker that runs it. Rounds without
poison are the control: in those with it the others wait hardly longer. Red control: attempts have no limit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import msgspec
from sqlalchemy import select

from experiments.checker import drained
from experiments.cluster import Cluster, Role
from experiments.gate import UNSANDBOXED, allow_unsandboxed
from experiments.report import Report, Tally
from tests import servers
from weft.app import App
from weft.clock import SECOND, seconds
from weft.db import schema
from weft.db.database import Transaction
from weft.runs import endings
from weft.runs.endings import EndingVerdict
from weft.runs.model import Ending, NewRun, Retry, RunSpec

HEALTHY = "healthy"
KILLER = "worker-killer"
SCRIPTS = {"crash": "kill -SEGV $$", "error": "exit 1", "hang": "exec sleep 3600", KILLER: "kill -KILL $PPID"}
"""A run's shell is a child of its worker."""

RETRY = Retry(count=2, delay_seconds=0.3, factor=2.0, jitter=0.0)
LATER_SECONDS = 0.05
"""By how much the clocks of two processes may seem to differ."""

ALLOWED_RATIO = 1.2

TIES = 2
"""How many workers more a killer may take where another run, lost with it as often, could have been the one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    runs: int
    """Of which one in a hundred is poison."""
    killers: int
    rounds: int = 3
    patience_seconds: float = 120.0
    workers: int = 4
    capacity: int = 10
    work_seconds: float = 0.2


REDUCED = Size(runs=1000, killers=1, work_seconds=0.3)  # so long that a worker which comes back is a small part of it
FULL = Size(runs=10_000, killers=4, patience_seconds=600.0)
RED = Size(runs=200, killers=1, rounds=1, patience_seconds=15.0)


def endless() -> None:
    """Red control: there is always one more attempt."""
    judge = endings.judge

    def forgiving(ending: Ending, *, retry: Retry, **counts: Any) -> EndingVerdict:
        verdict: EndingVerdict = judge(
            ending, retry=msgspec.structs.replace(retry, count=10**9, losses=10**9), **counts
        )
        return verdict

    endings.judge = forgiving


def healthy(size: Size) -> NewRun:
    spec = RunSpec(spec={"sleep_seconds": size.work_seconds})
    return NewRun(project="default", task=HEALTHY, kind="noop", spec=spec)


def poison(task: str) -> NewRun:
    spec = RunSpec(spec={"script": SCRIPTS[task]} | UNSANDBOXED, retry=RETRY, timeout_seconds=1.0, grace_seconds=0.5)
    return NewRun(project="default", task=task, kind="shell", spec=spec)


def batch(size: Size, *, poisoned: bool) -> list[NewRun]:
    """Runs in any order, some of them poison."""
    killers = [KILLER] * size.killers
    others = [task for task in SCRIPTS if task != KILLER] * size.runs
    tasks = [*killers, *others[: size.runs // 100 - len(killers)]] if poisoned else []
    runs = [*map(poison, tasks), *(healthy(size) for _ in range(size.runs - len(tasks)))]
    random.shuffle(runs)
    return runs


@dataclass(slots=True)
class Seen:
    """How long 95 of 100 healthy runs waited at most, round by round, and what it took."""

    control: list[float] = field(default_factory=list)
    poisoned: list[float] = field(default_factory=list)
    deaths: int = 0
    """How many workers were killed by a run."""


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R09")
    size = FULL if full else RED if red else REDUCED
    patch = "r09:endless" if red else None
    with servers.postgresql() as server, Cluster(database=server.new_database(), capacity=size.capacity) as cluster:
        async with cluster.app() as app:
            cluster.serve("serve", red=patch)
            workers = [cluster.worker(f"w{number}", red=patch) for number in range(size.workers)]
            await cluster.ready(app)
            await allow_unsandboxed(app)
            await observe(report, app, size, workers)
    return report


async def observe(report: Report, app: App, size: Size, workers: Sequence[Role]) -> None:
    began, seen = time.monotonic(), Seen()
    keeping = asyncio.create_task(_keep_alive(workers, seen))
    try:
        for _ in range(size.rounds):
            seen.control.append(await _waited(report, app, size, poisoned=False))
            seen.poisoned.append(await _waited(report, app, size, poisoned=True))
    finally:
        keeping.cancel()
    found = await app.db.read(Found.of)
    report.add("PostgreSQL", replace(found.tally(), kills=seen.deaths, seconds=time.monotonic() - began))
    report.expect(not found.hasty(), f"{len(found.hasty())} attempts came before their back-off was over")
    report.expect(seen.deaths > 0, "no worker was killed by a run")
    killers = sorted(row.losses for row in found.runs if row.task == KILLER)
    report.note(f"runs that kill their worker were stopped after {killers} of them; 3 are allowed, more after a tie")
    _judge_waits(report, seen)


async def _keep_alive(workers: Sequence[Role], seen: Seen) -> None:
    """Replace each worker that dies, as its supervisor would."""
    while True:
        for worker in workers:
            if not worker.alive:
                seen.deaths += 1
                worker.start()
        await asyncio.sleep(0.1)


async def _waited(report: Report, app: App, size: Size, *, poisoned: bool) -> float:
    """Run a batch to its end; how long 95 of 100 healthy runs waited for their first start at most."""
    submitted = [each.run_id for each in await app.runs.submit(batch(size, poisoned=poisoned))]
    report.expect(await drained(app, size.patience_seconds), f"runs went on for {size.patience_seconds:g} s")
    waits = await app.db.read(lambda tx: _waits(tx, min(submitted)))
    return sorted(waits)[int(0.95 * (len(waits) - 1))]


def _waits(tx: Transaction, first_id: int) -> list[float]:
    runs, attempts = schema.runs, schema.attempts
    query = select(runs.c.id, runs.c.queued_at, runs.c.started_at).where(runs.c.task == HEALTHY, runs.c.id >= first_id)
    first = select(attempts.c.run_id, attempts.c.started_at).where(attempts.c.attempt == 1)
    earlier: dict[int, int] = dict(tx.rows(first))
    return [(earlier.get(row.id, row.started_at) - row.queued_at) / SECOND for row in tx.rows(query)]


@dataclass(frozen=True, slots=True)
class Found:
    """Every run, and every attempt that was followed by another."""

    runs: Sequence[Any]
    starts: dict[tuple[int, int], int]
    failures: Sequence[Any]

    @classmethod
    def of(cls, tx: Transaction) -> Found:
        runs, attempts = tx.rows(select(schema.runs)), tx.rows(select(schema.attempts))
        starts = {(row.run_id, row.attempt): row.started_at for row in attempts}
        starts |= {(row.id, row.attempt): row.started_at for row in runs if row.started_at is not None}
        return cls(runs, starts, [row for row in attempts if row.outcome in ("failed", "timeout")])

    def tally(self) -> Tally:
        verdicts = Counter(_verdict(row) for row in self.runs)
        lost = sum(row.losses for row in self.runs)
        return Tally(attempted=len(self.runs), acknowledged=len(self.runs), recovered=lost, **verdicts)

    def hasty(self) -> list[Any]:
        """Failures whose next attempt came too soon; the time between grows with the tries, losses are no tries."""
        tries: Counter[int] = Counter()
        found = []
        for row in sorted(self.failures, key=lambda row: (row.run_id, row.attempt)):
            tries[row.run_id] += 1
            pause = seconds(RETRY.delay(tries[row.run_id], 0.0) - LATER_SECONDS)
            following = self.starts.get((row.run_id, row.attempt + 1))
            if following is not None and following < row.finished_at + pause:
                found.append(row)
        return found


def _verdict(row: Any) -> str:
    """What became of a run, in the words of a tally; a poison run must have failed after exactly what it is allowed."""
    if row.state in ("queued", "running"):
        return "unknown"
    if row.task == HEALTHY:
        return "ok" if row.state == "succeeded" else "lost"
    if row.task == KILLER:
        spent, least, most = row.losses, RETRY.losses, RETRY.losses + TIES
    else:
        spent, least, most = row.tries, RETRY.count + 1, RETRY.count + 1
    if row.state != "failed" or spent < least:
        return "lost"
    return "ok" if spent <= most and row.attempt == row.tries + row.losses else "duplicated"


def _judge_waits(report: Report, seen: Seen) -> None:
    """Compare medians; a machine whose control rounds differ among themselves can show no finer difference."""
    control, poisoned = median(seen.control), median(seen.poisoned)
    noise = max(seen.control) / min(seen.control)
    ratio, allowed = poisoned / control, ALLOWED_RATIO * noise
    report.note(f"healthy runs waited {poisoned:.2f} s (p95) beside poison, {control:.2f} s without: {ratio:.2f} times")
    report.note(f"rounds without poison differed by {noise:.2f} times, so {allowed:.2f} times are allowed")
    report.expect(ratio <= allowed, f"healthy runs waited {ratio:.2f} times as long, {allowed:.2f} are allowed")
