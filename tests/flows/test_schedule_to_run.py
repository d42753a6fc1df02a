"""From a schedule to what comes after it: scheduler and worker together, with real commands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.conftest import OpenApp, SetClock
from tests.runs.acting import allow_unsandboxed
from tests.waiting import eventually
from weft.app import App, open_worker
from weft.clock import SECOND
from weft.runs.model import Run, RunState
from weft.tasks import taskfile
from weft.workers.heartbeat import Heartbeats

FILE = """
[projects.shop]
max_running = 5

[[tasks]]
name = "fetch"
project = "shop"
kind = "shell"
spec = { argv = ["PYTHON", "-c", "print('fetched {{what}}')"] }
params = { what = "prices" }
schedule = { when = "*/5 * * * *", misfire = "all" }

[[tasks]]
name = "report"
project = "shop"
kind = "shell"
spec = { script = "echo report of $WEFT_CORRELATION_ID" }
after = "fetch"

[[tasks]]
name = "alarm"
project = "shop"
kind = "shell"
spec = { argv = ["false"] }
after = [{ task = "fetch", on = "failure" }]
"""


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    """A worker that leases whatever there is, until the block ends."""
    heartbeats = Heartbeats(app.protocol, app.config.heartbeat_seconds)
    worker = open_worker(app, "w1", heartbeats)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.drain()
        await running
        heartbeats.close()


async def ended(app: App, task: str) -> Run | None:
    runs = await app.runs.find({"project": "shop", "task": task})
    return runs[0] if runs and runs[0].finished_at is not None else None


async def ticked_until_ended(app: App, task: str) -> Run:
    """Tick until the newest run of a task has ended."""

    async def look() -> Run | None:
        await app.scheduler.tick()
        return await ended(app, task)

    found: Run = await eventually(look)
    return found


async def test_a_file_becomes_a_schedule_a_run_and_what_follows(app: App, clock: SetClock, tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    path.write_text(FILE.replace("PYTHON", sys.executable))
    changes = await app.tasks.apply(taskfile.load(path))
    assert [change.what for change in changes] == ["settings", "create", "create", "create"]
    start = clock()
    async with working(app):
        clock.forward(300)
        report = await ticked_until_ended(app, "report")
        alarm = await ticked_until_ended(app, "alarm")
    fetch = await ended(app, "fetch")
    assert fetch is not None
    assert (fetch.state, fetch.trigger, fetch.fire_at) == (RunState.SUCCEEDED, "schedule", start + 300 * SECOND)
    assert (report.state, report.trigger) == (RunState.SUCCEEDED, "dependency")
    assert (alarm.state, alarm.outcome) == (RunState.CANCELLED, "skipped")
    assert await app.runs.log(fetch.id) == b"fetched prices\n"
    assert await app.runs.log(report.id) == f"report of {fetch.correlation_id}\n".encode()


async def test_a_replaced_run_is_stopped_and_the_new_one_takes_its_place(
    another_app: OpenApp, clock: SetClock, tmp_path: Path
) -> None:
    app = await another_app(heartbeat_seconds=0.1)
    script = f"echo $$ >> {tmp_path}/started; sleep 600"
    table = {"name": "slow", "project": "shop", "kind": "shell", "grace_seconds": 1}
    table["spec"] = {"script": script, "isolation": "L0"}
    schedule = {"when": "* * * * *", "overlap": "replace"}
    await allow_unsandboxed(app)
    await app.tasks.apply(taskfile.parse({"tasks": [table | {"schedule": schedule}]}, "here"))
    started = tmp_path / "started"

    def starts() -> int:
        return len(started.read_text().split()) if started.exists() else 0

    async with working(app):
        clock.forward(60)
        await app.scheduler.tick()
        await eventually(lambda: starts() == 1)
        clock.forward(60)
        await app.scheduler.tick()
        await eventually(lambda: starts() == 2)
        second, first = await app.runs.find({"task": "slow"})
        assert (first.state, second.state) == (RunState.CANCELLED, RunState.RUNNING)
        assert not Path(f"/proc/{started.read_text().split()[0]}").exists()
        await app.runs.cancel(second.id)
        assert await eventually(lambda: ended(app, "slow"))
