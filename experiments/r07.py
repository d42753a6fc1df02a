"""R07: a cancel is final.

Runs are cancelled while they wait, start, run, stop, wait for their next attempt or are paused, one at a time and at
moments left to chance, while their workers are killed. Each must end as cancelled, within the grace of its processes
and the lease of a dead worker; no attempt may begin after its cancel was answered, and no process may be left. Shell
runs have children and some heed no signal; every sixth run is a spider. Red control: what becomes of a lost or failed
attempt is decided without a look at the cancel.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle, islice

from msgspec.structs import replace

from experiments.checker import drained
from experiments.cluster import Cluster, Role
from experiments.crawling import PROJECT, Field, crawl, deploy
from experiments.gate import ALONE, STUBBORN, WITH_CHILD, Gate, allow_unsandboxed
from experiments.meanwhile import meanwhile
from experiments.report import Report, Tally
from tests.waiting import eventually
from weft.app import App
from weft.errors import Conflict
from weft.runs.model import NewRun, Retry, Run

RED = "r07:forget_the_cancel"
WORKERS, CAPACITY = 2, 6
WAVE = 24
FAILING = Retry(count=1000, delay_seconds=0.2, factor=1.0, losses=1000)
KINDS = ("queued", "starting", "running", "stopping", "waiting", "paused")
"""The state in which each run of a wave is cancelled, as near as can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    cancels: int
    grace_seconds: float
    """How long a process may take to end after it was asked to."""
    ended_seconds: float
    """From the answer to a cancel to the end of the run and of its last process."""
    kinds: tuple[str, ...] = KINDS


FULL = Size(cancels=1008, grace_seconds=5.0, ended_seconds=35.0)
REDUCED = Size(cancels=72, grace_seconds=1.0, ended_seconds=35.0)
SHOWING = Size(cancels=24, grace_seconds=1.0, ended_seconds=3.0, kinds=("waiting", "running"))


@dataclass(slots=True)
class Seen:
    """What the cancels did."""

    cancelled: dict[int, int] = field(default_factory=dict)
    """The attempt that each run had when its cancel was answered."""
    states: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    left: list[int] = field(default_factory=list)
    """Processes that outlived their runs."""
    kills: int = 0


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R07")
    size = SHOWING if red else FULL if full else REDUCED
    patch = RED if red else None
    with Cluster(capacity=CAPACITY) as cluster:
        cluster.serve(red=patch)
        workers = [cluster.worker(f"w{number}", red=patch) for number in range(1, WORKERS + 1)]
        async with cluster.app() as app:
            await cluster.ready(app)
            await allow_unsandboxed(app)
            await deploy(app, PROJECT)
            await Scene(cluster, app, workers, size).go_on(report)
            report.expect(not cluster.fallen(), f"{cluster.fallen()}")
    return report


class Scene:
    def __init__(self, cluster: Cluster, app: App, workers: list[Role], size: Size) -> None:
        self._app, self._workers, self._size = app, workers, size
        self._gate, self._field, self.seen = Gate(cluster.folder), Field(cluster), Seen()
        self._last_cancel = 0.0

    async def go_on(self, report: Report) -> None:
        """Wave after wave of runs, each cancelled; then look at what became of them."""
        began = time.monotonic()
        async with meanwhile(self._field.follow):
            for _ in range(0, self._size.cancels, WAVE):
                await self._wave()
        runs = [await self._app.runs.get(run_id) for run_id in self.seen.cancelled]
        report.add("cancels", self._tally(runs, time.monotonic() - began))
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.seen.states.items()))
        report.note(f"cancelled while {states}; the slowest was over after {self.seen.slowest:.1f} s")
        limit = self._size.ended_seconds
        report.expect(self.seen.slowest < limit, f"a cancelled run was over after {self.seen.slowest:.1f} s")
        report.expect(not self.seen.left, f"{len(self.seen.left)} processes outlived their runs")
        begun = [run.id for run in runs if run.attempt != self.seen.cancelled[run.id]]
        report.expect(not begun, f"{len(begun)} runs began again after their cancel: {begun[:5]}")

    async def _wave(self) -> None:
        """Submit, cancel each, kill a worker on the way, and wait until nothing is left."""
        kinds = list(islice(cycle(self._size.kinds), WAVE))
        submitted = await self._app.runs.submit([self._new_run(kind) for kind in kinds])
        cancels = [self._cancel(each.run_id, kind) for each, kind in zip(submitted, kinds, strict=True)]
        began = time.monotonic()
        await asyncio.gather(self._strike(), *cancels)
        await drained(self._app, self._size.ended_seconds + 10)
        try:
            await eventually(lambda: not self._processes(), 5.0)
        except AssertionError:
            self.seen.left += self._processes()
        self.seen.slowest = max(self.seen.slowest, time.monotonic() - max(began, self._last_cancel))

    def _new_run(self, kind: str) -> NewRun:
        if kind == "paused":
            spider = crawl(pause=0.2)
            return replace(spider, spec=replace(spider.spec, spec={**spider.spec.spec, "resumable": True}))
        script = {"stopping": STUBBORN, "waiting": "sleep 0.3; exit 1"}.get(kind, WITH_CHILD)
        run = self._gate.new_run(ALONE if random.random() < 0.3 and kind == "running" else script)
        labels = ("nobody-has-this",) if kind == "queued" else ()
        spec = replace(run.spec, labels=labels, grace_seconds=self._size.grace_seconds, retry=FAILING)
        return replace(run, spec=spec)

    async def _cancel(self, run_id: int, kind: str) -> None:
        """Cancel a run about when it is in a state; one that stops is cancelled once more."""
        await asyncio.sleep(random.random() * {"queued": 0.5, "starting": 0.3}.get(kind, 4.0))
        if kind == "paused":
            await self._app.pauses.pause(run_id)
            await asyncio.sleep(random.random() * 2)
        run = await self._app.runs.cancel(run_id)
        self._last_cancel = time.monotonic()
        self.seen.cancelled[run_id] = run.attempt
        self.seen.states[kind if run.state != "running" else f"{kind} (at work)"] += 1
        if kind == "stopping":
            try:
                await self._app.runs.cancel(run_id)
            except Conflict:
                pass

    async def _strike(self) -> None:
        """Kill a worker in the midst of it, alone or with all that it started."""
        worker = random.choice(self._workers)
        await asyncio.sleep(random.random() * 4)
        random.choice([worker.kill, worker.kill_family])()
        worker.start()
        self.seen.kills += 1

    def _processes(self) -> list[int]:
        return [pid for pids in self._gate.waiting().values() for pid in pids] + list(self._field.spiders())

    def _tally(self, runs: list[Run], seconds: float) -> Tally:
        ended = Counter(_became(run, self.seen.cancelled[run.id]) for run in runs)
        counts = {"attempted": len(runs), "acknowledged": len(runs), "kills": self.seen.kills, "seconds": seconds}
        return Tally(**counts, **ended)  # type: ignore[arg-type]


def _became(run: Run, attempt: int) -> str:
    if run.attempt != attempt:
        return "duplicated"
    if run.finished_at is None:
        return "unknown"
    return "ok" if run.state == "cancelled" else "lost"


def forget_the_cancel() -> None:
    """Red control: whoever decides what follows for a run does not ask whether it was cancelled."""
    from weft.runs import endings
    from weft.runs.endings import judge

    endings.judge = lambda ending, **known: judge(ending, **{**known, "cancel_requested": False})
