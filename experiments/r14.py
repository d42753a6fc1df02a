"""R14: logs lose at most the last second of a killed worker, and never stall the spider.

Spiders print thousands of lines a second, each with its number and its time, on workers at the other end of a gateway.
The gateway is frozen for a while, a worker's disk takes no more, logs are capped: the spiders must print as fast as
when all is well, and what is missing in a log must be told there in bytes. Then workers are killed: of what their
spiders had printed until a second before that, nothing may be missing. Red control: logs are shipped when a run has
ended.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.cluster import Cluster, Role
from experiments.printing import Ear, Printed, deploy, print_run
from experiments.report import Report, Tally
from experiments.stocktaking import stored_of
from tests.waiting import eventually
from weft.app import App
from weft.runs.model import ENDED, NewRun, Run

RED = "r14:ship_nothing"
LEASE: dict[str, Any] = {"lease_seconds": 300.0, "heartbeat_seconds": 1.0}
"""A gateway that is away for less than a lease takes no run from its worker."""

PATIENCE_SECONDS = 120.0
LABELS = ("fine", "full")
"""Of the workers: one on whose disk there is room, and one on whose disk there is little."""

RECORD_BYTES = 20_000
"""What a run's log may have beside its lines, such as what Scrapy tells at its end."""

Fault = Callable[[Role], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of each scene."""

    spiders: int
    rate: float
    """Lines a second, of each spider."""
    width: int
    """Bytes of a line."""
    seconds: float
    """How long each prints."""
    away: float
    """For how long the gateway is frozen: so long that a spider which waits for it cannot keep its pace."""
    kills: int
    gap: float
    """How many seconds of lines before its worker's death a log may lack."""
    pace: float
    """The share of the pace without a fault that spiders must keep."""
    cap: int
    """Bytes that a log may have where it is capped, and that a worker can write into a file where its disk is full."""


REDUCED = Size(spiders=3, rate=2000, width=500, seconds=2.0, away=4.0, kills=1, gap=2.0, pace=0.6, cap=300_000)
"""On a machine that may be busy: two seconds, and a pace that one who waits for the gateway would not have."""
FULL = Size(spiders=10, rate=2000, width=200, seconds=90.0, away=60.0, kills=10, gap=1.0, pace=0.95, cap=5_000_000)
SHOWING = Size(spiders=1, rate=2000, width=200, seconds=4.0, away=0, kills=1, gap=2.0, pace=0.6, cap=300_000)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R14")
    size = SHOWING if red else FULL if full else REDUCED
    with Cluster(capacity=size.spiders, **LEASE) as cluster:
        gateway = cluster.serve()
        async with cluster.app() as app:
            press = Press(report, cluster, app, size)
            await cluster.ready(app)
            await press.worker("fine", red=RED if red else None)
            if not red:
                await press.worker("full", prefix=["prlimit", f"--fsize={size.cap}"])
            await cluster.ready(app)
            await deploy(app)
            if not red:
                await press.slow_ways(gateway)
            for number in range(size.kills):
                await press.killed(f"killed {number + 1}", cluster.roles["fine"], again=number + 1 < size.kills)
        fallen = cluster.fallen()
        report.expect(not fallen, f"without being killed {fallen}")
    return report


@dataclass(slots=True)
class Press:
    """Spiders that print, and the workers that they print on."""

    report: Report
    cluster: Cluster
    app: App
    size: Size
    pace: float = 0.0
    """Lines a second of a spider when all is well."""

    async def worker(self, name: str, *, red: str | None = None, prefix: Sequence[str] = ()) -> None:
        """Start a worker that reaches nothing but the gateway, and takes runs with its name as a label."""
        _, token = await self.app.keys.create(f"join-{name}", {}, by="experiment", kind="join")
        alone: dict[str, Any] = {"database": None, "broker": None, "data_dir": str(self.cluster.folder / name)}
        address = f"http://127.0.0.1:{self.cluster.ports['serve']}"
        role = self.cluster.start(
            name,
            ["weft", "worker", "--name", name],
            red=red,
            prefix=prefix,
            connect=address,
            token=token,
            labels=name,
            **alone,
        )
        await eventually(lambda: self._has_joined(role), PATIENCE_SECONDS)

    async def _has_joined(self, role: Role) -> bool:
        return any(each.pid == role.pid and each.state != "offline" for each in await self.app.workers.all())

    async def slow_ways(self, gateway: Role) -> None:
        """Nothing wrong, a gateway that does not answer, a disk that is full, logs that are capped."""
        warming = [self._printed(f"warming up {label}", self._run(label, seconds=0.1), nothing) for label in LABELS]
        await asyncio.gather(*warming)
        await self._printed("all is well", self._run("fine"), nothing)
        await self._printed("gateway frozen", self._run("fine"), lambda _: frozen(gateway, self.size.away))
        await self._printed("disk full", self._run("full"), nothing, most=self.size.cap)
        await self._printed("log capped", self._run("fine", log_bytes=self.size.cap), nothing, most=self.size.cap)

    def _run(self, label: str, seconds: float | None = None, **more: Any) -> NewRun:
        more.setdefault("log_bytes", 100_000_000)
        return print_run(self.size.rate, seconds or self.size.seconds, self.size.width, label, **more)

    async def _printed(self, scene: str, run: NewRun, fault: Fault, most: int | None = None) -> None:
        """Let spiders print while something is wrong; their logs have all that they printed, or ``most`` of it."""
        began = time.monotonic()
        submitted = await self.app.runs.submit([run] * self.size.spiders)
        run_ids = [each.run_id for each in submitted]
        await eventually(lambda: self._all(run_ids, lambda found: found.state != "queued"), PATIENCE_SECONDS)
        await fault(self.cluster.roles["fine"])
        await eventually(lambda: self._all(run_ids, lambda found: found.state in ENDED), PATIENCE_SECONDS)
        told = await self._told(run_ids)
        self._compare_pace(scene, told)
        wrong = [problem for run_id in run_ids if (problem := await self._log_problem(run_id, told.get(run_id), most))]
        for problem in wrong[:3]:
            self.report.note(f"{scene}: {problem}")
        seconds, count = time.monotonic() - began, len(run_ids)
        counts = {"attempted": count, "acknowledged": count, "ok": count - len(wrong), "lost": len(wrong)}
        self.report.add(scene, Tally(seconds=seconds, **counts))

    async def _all(self, run_ids: Sequence[int], fine: Callable[[Run], bool]) -> bool:
        return all([fine(await self.app.runs.get(run_id)) for run_id in run_ids])

    async def _told(self, run_ids: Sequence[int]) -> dict[int, dict[str, float]]:
        """What each spider says of its lines."""
        stored = await self.app.db.read(lambda tx: stored_of(tx, run_ids))
        return {run_id: items[0][1] for (run_id, _), items in stored.items() if items}

    def _compare_pace(self, scene: str, told: dict[int, dict[str, float]]) -> None:
        pace = statistics.median([each["lines"] / each["seconds"] for each in told.values()] or [0.0])
        longest = max([each["longest"] for each in told.values()] or [0.0])
        self.report.note(f"{scene}: {pace:.0f} lines a second of each spider, which waited {longest:.2f} s at most")
        self.pace = self.pace if scene != "all is well" else pace
        slow = f"{scene}: spiders print {pace:.0f} lines a second, {self.pace:.0f} when all is well"
        self.report.expect(pace >= self.size.pace * self.pace, slow)

    async def _log_problem(self, run_id: int, told: dict[str, float] | None, most: int | None) -> str:
        """What is wrong with the log of a run; nothing where all is well."""
        run = await self.app.runs.get(run_id)
        if run.outcome != "succeeded" or told is None:
            return f"run {run_id} is {run.outcome}: {run.reason}"
        lines, log = int(told["lines"]), await self.app.runs.log(run_id)
        found = Printed.read(log)
        if most is None:
            return (
                "" if found.is_whole(lines) and not found.dropped else f"run {run_id} lacks lines: {len(found.numbers)}"
            )
        missing = (lines - len(found.numbers)) * self.size.width
        fine = found.is_whole(len(found.numbers)) and missing and abs(found.dropped - missing) < RECORD_BYTES
        return "" if fine else f"run {run_id} lacks {missing} bytes and says that {found.dropped} were dropped"

    async def killed(self, scene: str, worker: Role, *, again: bool) -> None:
        """Kill a worker while its spiders print, and see how far their logs go."""
        began = time.monotonic()
        with Ear() as ear:
            run = self._run("fine", seconds=600.0, log_bytes=10_000_000, port=ear.port)
            submitted = await self.app.runs.submit([run] * self.size.spiders)
            await ear.hear(self.size.spiders, PATIENCE_SECONDS)
        self.report.note(f"{scene}: all spiders print after {time.monotonic() - began:.2f} s")
        run_ids = [each.run_id for each in submitted]
        await asyncio.sleep(self.size.gap + 1.5)
        killed_at = time.time()
        worker.kill()
        logs = [Printed.read(await self.app.runs.log(run_id)) for run_id in run_ids]
        gaps = [killed_at - each.last_at if each.numbers else float("inf") for each in logs]
        holes = [len(each.numbers) for each in logs if not each.is_whole(len(each.numbers))]
        count, late = len(run_ids), sum(gap > self.size.gap for gap in gaps)
        self.report.note(f"{scene}: logs end {min(gaps):.2f} to {max(gaps):.2f} s before the death of their worker")
        self.report.expect(not holes, f"{scene}: {len(holes)} logs have holes")
        self.report.expect(not late, f"{scene}: {late} logs lack more than {self.size.gap:g} s of lines")
        counts = {"attempted": count, "acknowledged": count, "ok": count - late, "lost": late}
        self.report.add(scene, Tally(kills=1, seconds=time.monotonic() - began, **counts))
        for run_id in run_ids:
            await self.app.runs.cancel(run_id)
        if again:
            worker.start()
            await eventually(lambda: self._has_joined(worker), PATIENCE_SECONDS)


async def nothing(_: Role) -> None:
    """No fault."""


async def frozen(role: Role, seconds: float) -> None:
    role.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        role.resume()


def ship_nothing() -> None:
    """Red control: what a run prints leaves its worker when the run has ended."""
    from weft.workers.worker import Worker

    async def wait(self: Worker) -> None:
        await asyncio.Event().wait()

    Worker._ship_forever = wait  # type: ignore[method-assign]
