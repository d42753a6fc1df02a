"""A worker that cannot write leases nothing, says why, gives back what it has, and goes on by itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import on_sqlite
from tests.runs.acting import submit, submit_many
from tests.waiting import eventually
from tests.workers.acting import Obedient, ended, is_in, working
from weft.app import App
from weft.ports import Ended, Work
from weft.runs.model import RunState
from weft.workers import work_dir

ROOM = 24 << 20
"""Of the small disk: little more than a worker wants to have left."""


@pytest.fixture
def runs(app: App) -> Iterator[Path]:
    """The folder of the runs of w1, on a disk of its own."""
    folder = app.config.folder / "runs" / "w1"
    folder.mkdir(parents=True)
    with mounted(folder):
        yield folder


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=700", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    file = folder / "ballast~"
    with file.open("wb") as ballast:
        try:
            while True:
                ballast.write(bytes(1 << 20))
        except OSError:
            pass
    return file


async def problem(app: App) -> str | None:
    return next((each.problem for each in await app.workers.all() if each.name == "w1"), None)


async def test_a_worker_with_a_full_disk_leases_nothing_and_goes_on_when_there_is_room(app: App, runs: Path) -> None:
    ballast = fill(runs)
    async with working(app, Obedient()) as (_, _task):
        found = await eventually(lambda: problem(app))
        assert found.startswith("its disk is full: ")
        assert (await app.workers.get("w1")).state == "unhealthy"
        run_id = await submit(app)
        [why] = (await app.insights.reasons.of([run_id])).values()
        assert why == f"the workers that could take it are unhealthy: {found}"
        assert await is_in(app, run_id, RunState.QUEUED)
        ballast.unlink()
        await eventually(lambda: is_in(app, run_id, RunState.RUNNING))
        await eventually(lambda: _is_online(app))


async def _is_online(app: App) -> bool:
    return (await app.workers.get("w1")).state == "online"


@on_sqlite
async def test_runs_that_a_full_disk_fails_spend_no_try_and_end_well_elsewhere(app: App, runs: Path) -> None:
    """The disk is full only once they were leased, as where something else fills it."""

    class Filled(Obedient):
        async def execute(self, work: Work) -> Ended:
            self.started.append((work.run_id, work.attempt))
            fill(runs)
            return Ended(outcome="failed", reason="No space left on device")

    full = Filled()
    async with working(app, full):
        run_ids = await submit_many(app, 3)
        await eventually(lambda: problem(app))
        healthy = Obedient()
        async with working(app, healthy, name="w2"):
            for run_id in run_ids:
                await eventually(partial(healthy.ends.__contains__, run_id))
                healthy.end(run_id)
                run = await ended(app, run_id)
                assert (run.state, run.tries) == (RunState.SUCCEEDED, 1)
    [first] = [each for each in await app.runs.attempts(full.started[0][0]) if each.worker == "w1"]
    assert first.outcome == "released"
    assert (first.reason or "").startswith("given back by its worker: its disk is full: ")


@on_sqlite
async def test_a_run_that_fills_the_disk_itself_fails(app: App, runs: Path) -> None:
    class Greedy(Obedient):
        needs_folder = True

        async def execute(self, work: Work) -> Ended:
            fill(work.folder)
            return Ended(outcome="disk_limit", reason="No space left on device")

    async with working(app, Greedy()):
        run = await ended(app, await submit(app))
        assert (run.outcome, run.reason) == ("disk_limit", "No space left on device")


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "w1").symlink_to("/proc/self")
    checked = work_dir.DiskCheck(tmp_path / "w1")
    assert not await checked.is_writable()
    assert checked.problem.startswith("it cannot write to its folder of runs: ")
    (tmp_path / "w1").unlink()
    assert await checked.is_writable()
    assert list((tmp_path / "w1").iterdir()) == []
