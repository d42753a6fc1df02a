"""The worker's side of zygotes, when the code that they have imported does what it should not."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.executing import Log, attempt
from tests.spiders import SPIDERS, project, ready
from tests.waiting import eventually
from weft.adapters.executors import _group
from weft.adapters.executors._zygote import Zygote
from weft.adapters.executors.spider import SpiderExecutor

FORKS_AT_IMPORT = """
import os, time
if os.fork() == 0:
    time.sleep(600)
    os._exit(0)
"""

LIES = """
import os
os.fork = lambda: VICTIM
"""

IMPORTS_LATE = """
import scrapy


class Late(scrapy.Spider):
    name = "late"

    async def start(self):
        from shop import words
        yield {"word": words.WORD}
"""


@pytest.fixture
async def executor() -> AsyncIterator[SpiderExecutor]:
    executor = SpiderExecutor()
    yield executor
    executor.release()


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    victim = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield victim
    victim.kill()
    victim.wait()


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def zygotes_of(executor: SpiderExecutor) -> list[Zygote]:
    return [task.result() for task in executor._zygotes._all.values()]


async def test_a_zygote_that_dies_is_noticed_although_its_code_has_forked(
    tmp_path: Path, executor: SpiderExecutor
) -> None:
    code, log = ready(project(tmp_path / "code", more=FORKS_AT_IMPORT)), Log()
    work = attempt(made(tmp_path / "runs" / "1-1"), {"spider": "endless"}, code=code, log=log)
    doing = asyncio.create_task(executor.execute(work))
    await log.shows(b"ready")
    (zygote,) = zygotes_of(executor)
    assert len(_group.members(zygote._child.pid)) == 2
    zygote._child.kill()
    ended = await asyncio.wait_for(doing, 20)
    assert (ended.outcome, ended.signal) == ("failed", 9)
    await eventually(lambda: not _group.members(zygote._child.pid))


async def test_a_zygote_cannot_have_others_signalled_in_place_of_its_child(
    tmp_path: Path, executor: SpiderExecutor, victim: subprocess.Popen[bytes]
) -> None:
    code = ready(project(tmp_path / "code", more=LIES.replace("VICTIM", str(victim.pid))))
    work = attempt(made(tmp_path / "runs" / "1-1"), {"spider": "things"}, code=code)
    ended = await asyncio.wait_for(executor.execute(work), 60)
    assert ended.outcome == "succeeded"  # it was started cold
    assert victim.poll() is None


async def test_code_that_was_dropped_and_fetched_again_gets_another_zygote(
    tmp_path: Path, executor: SpiderExecutor
) -> None:
    for number in (1, 2):
        folder = project(tmp_path / "code", spiders=IMPORTS_LATE)
        (folder / "shop" / "words.py").write_text("WORD = 'late'\n")
        run = made(tmp_path / "runs" / f"{number}-1")
        ended = await executor.execute(attempt(run, {"spider": "late"}, code=ready(folder)))
        assert ended.result is not None
        assert (ended.outcome, ended.result["items"]) == ("succeeded", 1), ended
        shutil.rmtree(folder)


async def test_a_fork_that_nobody_waits_for_any_more_is_ended(tmp_path: Path, executor: SpiderExecutor) -> None:
    code = ready(project(tmp_path / "code", spiders=SPIDERS))
    await executor.prepare(code, tmp_path / "runs")
    (zygote,) = zygotes_of(executor)
    doing = asyncio.create_task(
        executor.execute(attempt(made(tmp_path / "runs" / "1-1"), {"spider": "endless"}, code=code))
    )
    for _ in range(100):  # in steps of the loop: it is under way for a few milliseconds only
        if not zygote._started:
            await asyncio.sleep(0)
    assert zygote._started
    doing.cancel()
    await asyncio.sleep(0)
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing
    await eventually(lambda: zygote.is_idle)
