"""R31: a bad spider harms only itself.

Spiders that are bad in 17 ways (memory, processes, descriptors, CPU in C, files, logs, signals, daemons, cores, items)
run beside good ones on one worker. Each bad run must end with the name of the limit that it met, the good ones well and
about as fast as without them, and of the bad ones no process, folder, mount or open file may be left. Red control:
nobody watches what a run uses, and nobody looks for what it has left behind.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.cluster import Cluster, Role
from experiments.gauges import Use
from experiments.meanwhile import meanwhile
from experiments.misbehaving import ROGUES, Rogue, bad_run, deploy, good_run
from experiments.report import Report, Tally
from tests.servers.processes import residents
from tests.waiting import eventually
from weft.adapters.executors._process_groups import TaggedProcesses, tag_of
from weft.adapters.executors._resource_monitor import sweep_run
from weft.app import App
from weft.runs.model import ENDED, NewRun, Run
from weft.workers.work_dir import place_of_runs

RED = "r31:look_away"
WORKER = "w1"
FEED_SECONDS = 0.05
GONE_SECONDS = 20.0
"""How long what a run has left behind may take to be gone."""

SPARE_FILES = 10
"""Descriptors that a worker may have more of after the bad runs than before: what it keeps for the next ones."""

Ended = list[tuple[Rogue, Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of each scene."""

    levels: dict[str, tuple[Rogue, ...]]
    """Which bad spiders, at which isolation."""
    together: int
    """Bad runs at a time."""
    beside: int
    """Good runs at a time."""
    control: int
    """Good runs that show how long they take when they are alone; as many run beside bad ones, at least."""
    slower: float
    """How many times as long as alone a good run may take, in the median."""
    patience: float = 60.0
    """Seconds within which a bad run must have ended."""


def some(*names: str) -> tuple[Rogue, ...]:
    return tuple(rogue for rogue in ROGUES if rogue.spider in names)


IN_SHORT = {"L1": ROGUES, "L2": some("forks", "daemon", "aborts")}
REDUCED = Size(levels=IN_SHORT, together=6, beside=2, control=6, slower=4.0)
"""Several bad runs at a time, on two cores that others use too: good ones may take four times as long."""
FULL = Size(levels={"L1": ROGUES * 3, "L2": ROGUES}, together=1, beside=4, control=40, slower=1.25)
SHOWING = Size(
    levels={"L1": some("forks", "daemon", "hangs")}, together=3, beside=1, control=2, slower=100.0, patience=12.0
)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R31")
    size = SHOWING if red else FULL if full else REDUCED
    with Cluster(capacity=size.together + size.beside) as cluster:
        cluster.serve()
        worker = cluster.worker(WORKER, red=RED if red else None)
        async with cluster.app() as app:
            await cluster.ready(app)
            await deploy(app)
            for level, rogues in size.levels.items():
                await Scene(report, level, cluster, worker, app, size).play(rogues)
        fallen = cluster.fallen()
        report.expect(not fallen, f"without being killed {fallen}")
    return report


class Scene:
    """Bad runs of one isolation, and good ones beside them."""

    def __init__(self, report: Report, level: str, cluster: Cluster, worker: Role, app: App, size: Size) -> None:
        self._report, self._level, self._cluster, self._worker = report, level, cluster, worker
        self._app, self._size = app, size
        self._good: list[Run] = []

    async def play(self, rogues: Sequence[Rogue]) -> None:
        began = time.monotonic()
        await self._alone()
        control, self._good = self._good, []
        before = Use.of(self._worker.pid)
        async with meanwhile(*[self._feed] * self._size.beside):
            bad = [each for some in self._pieces(rogues) for each in await self._endure(some)]
            await eventually(lambda: len(self._good) >= self._size.control, self._size.patience)
        self._compare(control)
        await self._look_for_traces([run for _, run in bad], before)
        self._count(bad, time.monotonic() - began)

    async def _alone(self) -> None:
        """Good runs and no bad ones; the first of all finds nothing prepared, and is not counted."""
        await self._seen_through(good_run())
        async with meanwhile(*[self._feed] * self._size.beside):
            await eventually(lambda: len(self._good) >= self._size.control, self._size.patience)

    async def _feed(self) -> None:
        """One good run after the other."""
        while True:
            self._good.append(await self._seen_through(good_run()))

    def _pieces(self, rogues: Sequence[Rogue]) -> list[Sequence[Rogue]]:
        return [rogues[start : start + self._size.together] for start in range(0, len(rogues), self._size.together)]

    async def _endure(self, rogues: Sequence[Rogue]) -> Ended:
        runs = await asyncio.gather(*(self._seen_through(bad_run(rogue, self._level)) for rogue in rogues))
        return list(zip(rogues, runs, strict=True))

    async def _seen_through(self, new: NewRun) -> Run:
        """The run as it is once it has ended, or patience has."""
        (submitted,) = await self._app.runs.submit([new])
        until = time.monotonic() + self._size.patience
        while True:
            run = await self._app.runs.get(submitted.run_id)
            if run.state in ENDED or time.monotonic() > until:
                return run
            await asyncio.sleep(FEED_SECONDS)

    def _compare(self, control: Sequence[Run]) -> None:
        """Whether the good runs have ended well and in time."""
        failed = [f"{run.id} {run.outcome}: {run.reason}" for run in self._good if run.outcome != "succeeded"]
        self._report.expect(not failed, f"{self._level}: good runs have not succeeded: {failed[:3]}")
        alone, beside = _median_seconds(control), _median_seconds(self._good)
        taken = f"took {beside:.2f} s beside bad ones, {alone:.2f} s alone (medians)"
        self._report.note(f"{self._level}: {len(self._good)} good runs {taken}")
        slower = f"{self._level}: good runs take {beside / alone:.2f} times as long, {self._size.slower:g} is allowed"
        self._report.expect(beside <= self._size.slower * alone, slower)

    async def _look_for_traces(self, bad: Sequence[Run], before: Use) -> None:
        folders = [self._folder(run) for run in bad]
        try:
            await eventually(lambda: not self._left(folders), min(GONE_SECONDS, self._size.patience))
        except AssertionError:
            self._report.expect(False, f"{self._level}: left behind are {self._left(folders)[:5]}")
            for folder in folders:
                await sweep_run(folder)
        try:
            await eventually(lambda: self._more_files(before) <= SPARE_FILES, min(GONE_SECONDS, self._size.patience))
        except AssertionError:
            more = f"{self._more_files(before)} more open files than before"
            self._report.expect(False, f"{self._level}: the worker has {more}")

    def _more_files(self, before: Use) -> int:
        """Good runs that nobody waits for any more have theirs too, until they end."""
        return Use.of(self._worker.pid).files - before.files

    def _left(self, folders: Sequence[Path]) -> list[str]:
        census = TaggedProcesses()
        carriers = {pid for folder in folders for pid in census.carriers(tag_of(folder))}
        working = {pid for folder in folders for pid in residents(str(folder))}
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return [
            *(f"process {pid}" for pid in sorted(carriers | working)),
            *(f"folder {folder.name}" for folder in folders if folder.exists()),
            *(f"mount {mount}" for mount in mounts if mount.startswith(str(self._cluster.folder))),
        ]

    def _folder(self, run: Run) -> Path:
        place = place_of_runs(self._cluster.folder / "data" / "runs" / WORKER, run.spec.code)
        return place / f"{run.id}-{run.attempt}"

    def _count(self, bad: Ended, seconds: float) -> None:
        unended = [rogue for rogue, run in bad if run.state not in ENDED]
        wrong = [(rogue, run) for rogue, run in bad if run.state in ENDED and not _is_named(rogue, run)]
        for rogue, run in wrong:
            wanted = f"{rogue.outcome} ({rogue.says})" if rogue.says else rogue.outcome
            self._report.note(f"{self._level}: {rogue.spider} is {run.outcome}: {run.reason}; it should be {wanted}")
        if unended:
            self._report.note(f"{self._level}: not ended {[rogue.spider for rogue in unended]}")
        ended_as_named = len(bad) - len(wrong) - len(unended)
        counts = {"lost": len(wrong), "unknown": len(unended), "ok": ended_as_named + len(self._good)}
        everyone = len(bad) + len(self._good)
        self._report.add(self._level, Tally(attempted=everyone, acknowledged=everyone, seconds=seconds, **counts))


def _is_named(rogue: Rogue, run: Run) -> bool:
    return run.outcome == rogue.outcome and rogue.says in (run.reason or "")


def _median_seconds(runs: Sequence[Run]) -> float:
    taken = [run.finished_at - run.started_at for run in runs if run.finished_at and run.started_at]
    return statistics.median(taken) / 1_000_000


def look_away() -> None:
    """Red control: no limit of a run as a whole is watched, and what it leaves behind is nobody's."""
    from weft.adapters.executors import _supervised
    from weft.adapters.executors._resource_monitor import ResourceMonitor

    async def watch(self: ResourceMonitor) -> tuple[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def sweep(folder: Path) -> int:
        return 0

    ResourceMonitor.watch = watch  # type: ignore[method-assign]
    _supervised.sweep_run = sweep  # type: ignore[attr-defined]
