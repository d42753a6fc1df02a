"""R16: after any step of the clock, schedules go on within one interval, and no tick fires twice.

A control process and a worker run on a clock that the experiment sets: seconds, hours, days and ten years forward and
back, also while the control process is dead. Tasks are made and runs are counted over HTTP. After each step an
interval and a cron expression must fire again in time; what a clock change does to each expression is shown by a table
in the tests.
Red control: waits are left as they are when the clock is set back.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.cluster import Cluster, answers
from experiments.report import Report, Tally
from tests import servers
from tests.waiting import eventually
from weft.access.model import Role as Grant
from weft.client.client import Client, connect
from weft.errors import DatabaseDown, GatewayDown
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule

STEPPED, LEFT_ALONE = "r16:stepped", "r16:stepped_and_left_alone"
PROJECT = "default"
OFFSET = "clock"
"""The file with how many nanoseconds the clock of the roles is ahead."""
SECOND = 1_000_000_000
HOUR, DAY = 3600, 86_400
YEARS = 3653 * DAY
ALL_STEPS = (3 * HOUR, -3 * HOUR, -3 * HOUR, 1, -1, 40 * DAY, -40 * DAY, YEARS, -YEARS, -YEARS)
STEPS = (YEARS, -YEARS, -3 * HOUR, 40 * DAY, -1, -30)
SHOWING = (YEARS, -YEARS)
BEFORE_THE_MINUTE = 3
"""A long step ends so many seconds before a full minute, at which the cron expression is due."""
EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Size:
    steps: tuple[int, ...]
    patience_seconds: float
    """How much later than one interval a tick may come."""
    restarts: bool
    """Make every second step while the control process is dead, where it is a long one."""


REDUCED = Size(STEPS, patience_seconds=8.0, restarts=True)  # a machine that tests may have much else to do
FULL = Size((*ALL_STEPS, *ALL_STEPS[::-1], *STEPS), patience_seconds=2.0, restarts=True)
RED = Size(SHOWING, patience_seconds=4.0, restarts=False)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R16")
    size = RED if red else FULL if full else REDUCED
    with Cluster() as cluster:
        await scene(report, "SQLite", cluster, size, LEFT_ALONE if red else STEPPED)
    if full:
        with servers.postgresql() as server, Cluster(database=server.new_database()) as cluster:
            await scene(report, "PostgreSQL", cluster, size, STEPPED)
    return report


async def scene(report: Report, name: str, cluster: Cluster, size: Size, patch: str) -> None:
    began, clock = time.monotonic(), SetClock(cluster.folder / OFFSET)
    serve = cluster.serve(red=patch)
    cluster.worker(red=patch)
    async with cluster.app() as app:
        await cluster.ready(app)
        _, key = await app.keys.create("somebody", {PROJECT: Grant.DEVELOPER}, by="experiment")
    async with connect(f"http://127.0.0.1:{cluster.ports['serve']}", key) as weft:
        await weft.tasks.apply(
            DesiredState((_task("interval", every_seconds=EVERY_SECONDS), _task("cron", cron="* * * * *")))
        )
        await _fires(weft, "interval", 0, 60.0)
        verdicts: Counter[str] = Counter()
        for number, step in enumerate(size.steps):
            is_long = abs(step) >= HOUR
            dies = is_long and size.restarts and number % 2 == 1
            if dies:
                serve.kill()
            clock.step(step, to_the_minute=is_long)
            if dies:
                serve.start()
                await eventually(lambda: answers(cluster.ports["serve"], "/readyz"), 60)
            due = {"interval": EVERY_SECONDS} | ({"cron": BEFORE_THE_MINUTE} if is_long and not dies else {})
            for task, interval in due.items():
                before = await _newest(weft, task)
                fine = await _fires(weft, task, before, interval + size.patience_seconds)
                verdicts["ok" if fine else "lost"] += 1
                report.expect(fine, f"{name}: {task} did not fire after the clock was set by {step} s ({dies=})")
        doubled = await _doubled(weft)
    steps = len(size.steps)
    report.add(
        name,
        Tally(
            attempted=verdicts.total(),
            acknowledged=verdicts.total(),
            ok=verdicts["ok"],
            lost=verdicts["lost"],
            duplicated=doubled,
            kills=steps,
            seconds=time.monotonic() - began,
        ),
    )
    report.expect(not cluster.fallen(), f"{cluster.fallen()}")


def _task(name: str, **when: object) -> Task:
    schedule = Schedule(**when, misfire="skip", overlap="allow")  # type: ignore[arg-type]
    return Task(name=name, project=PROJECT, kind="noop", schedule=schedule)


async def _newest(weft: Client, task: str) -> int:
    found = await weft.runs.find({"project": PROJECT, "task": task}, limit=1)
    return found[0].id if found else 0


async def _fires(weft: Client, task: str, before: int, seconds: float) -> bool:
    """Whether the task has a run after that one in time."""

    async def has_fired() -> bool:
        try:
            return await _newest(weft, task) > before
        except (DatabaseDown, GatewayDown):
            return False

    try:
        return bool(await eventually(has_fired, seconds))
    except AssertionError:
        return False


async def _doubled(weft: Client) -> int:
    """How many ticks have more than one run."""
    found = await weft.runs.find({"project": PROJECT}, limit=100_000)
    return sum(count > 1 for count in Counter((run.task, run.fire_at) for run in found).values())


class SetClock:
    """How far the clock of the roles is ahead, in a file that all of them have mapped."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._mapped = mmap.mmap(opened.fileno(), 8)

    @property
    def ahead(self) -> int:
        return int(struct.unpack("q", self._mapped)[0])

    def step(self, seconds: int, *, to_the_minute: bool) -> None:
        ahead = self.ahead + seconds * SECOND
        if to_the_minute:
            shown = (time.time_ns() + ahead) // SECOND
            ahead += (60 - BEFORE_THE_MINUTE - shown % 60) * SECOND
        self._mapped[:] = struct.pack("q", ahead)


def stepped() -> None:
    """The clock of this process is that of the machine, and what the experiment's file says. The process can do
    nothing about it, as about a step of the machine's own."""
    with Path(OFFSET).open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    shown: Callable[[], int] = time.time_ns

    def time_ns() -> int:
        return shown() + int(struct.unpack("q", mapped)[0])

    time.time_ns, time.time = time_ns, lambda: time_ns() / SECOND


def stepped_and_left_alone() -> None:
    """Red control: nobody notices."""
    from weft.tasks.scheduler import ClockStepDetector

    async def notice(self: ClockStepDetector, *, leads: bool) -> None:
        """Look at nothing."""

    ClockStepDetector.notice = notice  # type: ignore[method-assign]
    stepped()
