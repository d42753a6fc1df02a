"""What becomes of an attempt on a worker that has lost it to another."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.waiting import eventually
from weft.adapters.blobs.files import FileBlobs
from weft.equipment import open_executor
from weft.runs.model import Lease, RunSpec
from weft.workers.attempt import LOST_GRACE_SECONDS, Running, Tools, no_code, see_through
from weft.workers.delivery import Delivery

STUBBORN = "trap '' TERM\necho ready\nwhile true; do sleep 1; done"
GRACE_SECONDS = 60.0


async def started(folder: Path) -> Running:
    """An attempt that only a kill ends, and whose task has all the time in the world."""
    spec = RunSpec(spec={"script": STUBBORN}, grace_seconds=GRACE_SECONDS)
    running = Running(Lease(7, 1, "shop", "prices", "shell", "c-1", "", spec), folder)
    unused: Any = None  # it yields nothing, so there is nobody to deliver to
    tools = Tools(open_executor, FileBlobs(f"file:{folder}/blobs"), no_code, Delivery(unused), unused)
    running.task = asyncio.create_task(see_through(running, tools))
    await eventually(lambda: running.log.written)
    return running


async def test_a_lost_attempt_is_killed_soon_whatever_grace_its_task_has(tmp_path: Path) -> None:
    running = await started(tmp_path)
    began = time.monotonic()
    running.stop("lost")
    assert running.task is not None
    await asyncio.wait({running.task})
    assert time.monotonic() - began < LOST_GRACE_SECONDS + 3
    assert running.ending is None


async def test_losing_an_attempt_hurries_one_that_was_being_stopped_gently(tmp_path: Path) -> None:
    running = await started(tmp_path)
    began = time.monotonic()
    running.stop("cancel")
    running.stop("lost")
    assert running.task is not None
    await asyncio.wait({running.task})
    assert time.monotonic() - began < LOST_GRACE_SECONDS + 3
