"""What becomes of an attempt on a worker that has lost it to another."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.api.acting import visiting
from tests.cli.commanding import weft
from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from tests.waiting import eventually
from tests.workers.acting import is_in
from tests.workers.far_away import Line, far_away, gateway
from tests.workers.test_far_process import started as worker_process
from weft.access.model import Role
from weft.adapters.blobs.files import FileBlobs
from weft.app import App
from weft.runs.model import Attempt, Lease, RunSpec, RunState
from weft.worker_setup import open_executor
from weft.workers.attempt import SHORT_GRACE_SECONDS, ExecutionContext, RunningAttempt, execute_attempt, no_code
from weft.workers.item_delivery import ItemDelivery

STUBBORN = "trap '' TERM\necho ready\nwhile true; do sleep 1; done"
GRACE_SECONDS = 60.0


async def started(folder: Path) -> RunningAttempt:
    """An attempt that only a kill ends, and whose task has all the time in the world."""
    spec = RunSpec(spec={"script": STUBBORN}, grace_seconds=GRACE_SECONDS)
    running = RunningAttempt(Lease(7, 1, "shop", "prices", "shell", "c-1", "", spec), folder)
    unused: Any = None  # it yields nothing, so there is nobody to deliver to
    tools = ExecutionContext(open_executor, FileBlobs(f"file:{folder}/blobs"), no_code, ItemDelivery(unused), unused)
    running.task = asyncio.create_task(execute_attempt(running, tools))
    await eventually(lambda: running.log.written)
    return running


async def test_a_lost_attempt_is_killed_soon_whatever_grace_its_task_has(tmp_path: Path) -> None:
    running = await started(tmp_path)
    began = time.monotonic()
    running.stop("lost")
    assert running.task is not None
    await asyncio.wait({running.task})
    assert time.monotonic() - began < SHORT_GRACE_SECONDS + 3
    assert running.ending is not None, "where its log is"
    assert (running.ending.log_key, running.ending.result) == ("logs/7/1.log", None)


async def test_losing_an_attempt_hurries_one_that_was_being_stopped_gently(tmp_path: Path) -> None:
    running = await started(tmp_path)
    began = time.monotonic()
    running.stop("cancel")
    running.stop("lost")
    assert running.task is not None
    await asyncio.wait({running.task})
    assert time.monotonic() - began < SHORT_GRACE_SECONDS + 3


TALKING = "echo in time\nuntil [ -e go ]; do sleep 0.05; done\necho last words"
"""A run that speaks again when the test says so, in its folder."""


async def is_log(app: App, run_id: int, log: bytes) -> bool:
    return await app.runs.log(run_id) == log


async def last_attempt(app: App, run_id: int) -> Attempt | None:
    ended = await app.runs.attempts(run_id)
    return ended[-1] if ended else None


@on_sqlite
async def test_the_last_words_of_a_run_whose_worker_was_cut_off_arrive_and_are_marked_late(app: App) -> None:
    run_id = await submit(app, kind="shell", spec={"script": TALKING}, max_losses=1)
    async with gateway(app) as address, Line(address) as line, far_away(app, line.address):
        await eventually(lambda: is_log(app, run_id, b"in time\n"))
        line.target = "http://127.0.0.1:1"
        line.cut()
        await Hand(app, (await app.workers.get("far")).id, "far").lose()
        (folder,) = app.config.folder.glob(f"far-*/runs/far/{run_id}-1")
        (folder / "go").touch()
        await eventually(lambda: b"last words" in (folder / "log").read_bytes())
        line.target = address
        await eventually(lambda: is_log(app, run_id, b"in time\nlast words\n"))
        await eventually(lambda: not folder.exists())
        assert await is_in(app, run_id, RunState.FAILED), "what comes late does not change how it ended"
    async with visiting(app) as nobody:
        viewer = await nobody.with_role(Role.VIEWER)
        (attempt,) = (await viewer.get(f"/v1/runs/{run_id}/attempts")).json["items"]
        assert (attempt["outcome"], attempt["late_from"], attempt["log_bytes"]) == ("lost", 8, 19)
        assert (await viewer.get(f"/v1/runs/{run_id}/log/lines")).json["late_from"] == 2
    here = ("--data-dir", app.config.data_dir, "runs")
    log, shown = [await asyncio.to_thread(weft, *here, what, str(run_id)) for what in ("log", "show")]
    assert log.out == "in time\nlast words\n"
    assert "from byte 8 on this log came late: its worker had been given up as lost" in log.err
    assert "19 (late)" in shown.out


@on_sqlite
async def test_a_worker_that_is_killed_and_starts_again_brings_the_log_of_what_it_ran(app: App, tmp_path: Path) -> None:
    run_id = await submit(app, kind="shell", spec={"script": "echo in time; sleep 600"}, max_losses=1)
    options, folder = ("--name", "w1", "--data-dir", app.config.data_dir), app.config.folder / f"runs/w1/{run_id}-1"
    with worker_process(tmp_path / "told", *options) as killed:
        await eventually(lambda: is_log(app, run_id, b"in time\n"))
        dead = await app.workers.get("w1")
        killed.kill()
        killed.wait()
    with (folder / "log").open("ab") as log:
        log.write(b"last words\n")
    with worker_process(tmp_path / "told", *options):
        await eventually(lambda: not folder.exists())
        await Hand(app, dead.id, "w1").lose()
        found = await eventually(lambda: last_attempt(app, run_id))
    assert (found.outcome, found.late_from, found.log_bytes) == ("lost", 8, 19)
    assert await app.runs.log(run_id) == b"in time\nlast words\n"
