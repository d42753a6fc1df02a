"""The supervisor: processes that end are replaced, the sooner the longer they lived."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import eventually
from weft.workers.supervisor import MOST_QUICK_ENDS, SupervisedProcess, Supervisor, pause_after
from weft.workers.work_dir import DrainStatus, note_waiting


def test_a_process_that_always_ends_at_once_is_replaced_for_ever_but_slowly() -> None:
    pauses = [pause_after(quick_ends) for quick_ends in range(3000)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.1, 10.0)


async def test_a_program_that_cannot_be_started_does_not_end_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="weft.workers.supervisor")
    mark = tmp_path / "lives"
    program = f"import pathlib, signal; pathlib.Path({str(mark)!r}).touch(); signal.pause()"
    roles = [
        SupervisedProcess("absent", [str(tmp_path / "no-such-program")]),
        SupervisedProcess("other", [sys.executable, "-c", program]),
    ]
    supervisor = Supervisor(roles, os.environ, patience_seconds=10)
    running = asyncio.create_task(supervisor.run())
    await eventually(mark.exists)
    assert not running.done()
    supervisor.stop()
    async with asyncio.timeout(30):
        await running


async def test_a_control_process_that_fails_at_each_start_is_given_up_and_that_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.workers.supervisor.pause_after", lambda quick_ends: 0.0)
    other = [sys.executable, "-c", "import signal; signal.pause()"]
    roles = [SupervisedProcess("serve", ["/bin/sh", "-c", "exit 3"], vital=True), SupervisedProcess("worker", other)]
    supervisor = Supervisor(roles, os.environ, patience_seconds=10)
    async with asyncio.timeout(30):
        await supervisor.run()
    assert supervisor.has_given_up
    assert [record.role for record in caplog.records if "fails at each start" in record.message] == ["serve"]  # type: ignore[attr-defined]


async def test_a_process_that_does_not_end_at_once_is_killed_when_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.workers.supervisor.HURRIED_SECONDS", 0.1)
    mark = tmp_path / "lives"
    deaf = f"import pathlib, signal, time; signal.signal(15, lambda *_: None); pathlib.Path({str(mark)!r}).touch()"
    deaf += "\nwhile True: time.sleep(600)"
    supervisor = Supervisor([SupervisedProcess("deaf", [sys.executable, "-c", deaf])], os.environ, patience_seconds=600)
    running = asyncio.create_task(supervisor.run())
    await eventually(mark.exists)
    supervisor.stop()
    await asyncio.sleep(0)
    assert (running.done(), supervisor.alive) == (False, ["deaf"])
    supervisor.stop(at_once=True)
    async with asyncio.timeout(60):
        await running
    assert supervisor.alive == []


async def test_a_worker_may_take_as_long_to_end_as_its_runs_may(tmp_path: Path) -> None:
    program = """
import pathlib, signal, time
folder = pathlib.Path({folder!r})
signal.signal(15, lambda *_: (folder / "asked").touch())
(folder / "lives").touch()
while not (folder / "go").exists(): time.sleep(0.02)
(folder / "ended").touch()
"""
    runs = tmp_path / "runs"
    role = SupervisedProcess("w1", [sys.executable, "-c", program.format(folder=str(tmp_path))], folder=runs)
    supervisor = Supervisor([role], os.environ, patience_seconds=0)
    running = asyncio.create_task(supervisor.run())
    await eventually((tmp_path / "lives").exists)
    note_waiting(runs, DrainStatus(time.monotonic() + 600, ["shop/prices (run 1)"]))
    supervisor.stop()
    await eventually((tmp_path / "asked").exists)
    (tmp_path / "go").touch()
    async with asyncio.timeout(60):
        await running
    assert (tmp_path / "ended").exists()


async def test_a_process_that_somebody_kills_is_replaced_however_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.workers.supervisor.pause_after", lambda quick_ends: 0.0)
    lives = tmp_path / "lives"
    killed = ["/bin/sh", "-c", f"echo >> {lives}; kill -9 $$"]
    supervisor = Supervisor([SupervisedProcess("serve", killed, vital=True)], os.environ, patience_seconds=10)
    running = asyncio.create_task(supervisor.run())
    await eventually(lambda: lives.exists() and len(lives.read_text()) > 2 * MOST_QUICK_ENDS)
    supervisor.stop()
    await running
    assert not supervisor.has_given_up
