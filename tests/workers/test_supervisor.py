"""The supervisor: processes that end are replaced, the sooner the longer they lived."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually
from weft.workers.supervisor import Role, Supervisor, pause_after


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
    roles = [Role("absent", [str(tmp_path / "no-such-program")]), Role("other", [sys.executable, "-c", program])]
    supervisor = Supervisor(roles, os.environ, patience_seconds=10)
    running = asyncio.create_task(supervisor.run())
    await eventually(mark.exists)
    assert not running.done()
    supervisor.stop()
    async with asyncio.timeout(30):
        await running
