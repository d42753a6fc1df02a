"""The worker's side of zygotes, when the code that they have imported does what it should not."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.executing import Log, attempt
from tests.spiders import SETTINGS, SHARED, SPIDERS, project, ready
from tests.waiting import eventually
from weft.adapters.executors import _process_groups, _zygote
from weft.adapters.executors._spec import Limits
from weft.adapters.executors._zygote import Unready, Zygote
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
    code, log = ready(project(tmp_path / "code", settings=SHARED, more=FORKS_AT_IMPORT)), Log()
    work = attempt(made(tmp_path / "runs" / "1-1"), {"spider": "endless"}, code=code, log=log)
    doing = asyncio.create_task(executor.execute(work))
    await log.shows(b"ready")
    (zygote,) = zygotes_of(executor)
    assert len(_process_groups.members(zygote._child.pid)) == 2
    zygote._child.kill()
    ended = await asyncio.wait_for(doing, 60)
    assert (ended.outcome, ended.signal) == ("failed", 9)
    await eventually(lambda: not _process_groups.members(zygote._child.pid))


async def test_a_zygote_cannot_have_others_signalled_in_place_of_its_child(
    tmp_path: Path, executor: SpiderExecutor, victim: subprocess.Popen[bytes]
) -> None:
    code = ready(project(tmp_path / "code", settings=SHARED, more=LIES.replace("VICTIM", str(victim.pid))))
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
    await executor.prepare(code, tmp_path / "runs", {})
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


READS_ENVIRONMENT = """
import os
import scrapy

FOUND = os.environ.get("SHOP_DB")


class Reads(scrapy.Spider):
    name = "reads"

    async def start(self):
        yield {"found": FOUND}
"""


async def test_runs_with_other_variables_have_another_zygote(tmp_path: Path, executor: SpiderExecutor) -> None:
    settings = f"{SETTINGS}WEFT_WARM = 'project'\n"
    code = ready(project(tmp_path / "code", spiders=READS_ENVIRONMENT, settings=settings))
    await executor.prepare(code, tmp_path / "runs", {"SHOP_DB": "one"})
    for number, (value, zygotes) in enumerate([("one", 1), ("two", 2)]):
        folder = made(tmp_path / "runs" / f"{number}-1")
        await executor.execute(attempt(folder, {"spider": "reads"}, code=code, env={"SHOP_DB": value}))
        (line,) = (folder / "items" / "000000000001.jl").read_text().splitlines()
        assert (json.loads(line)["item"], len(zygotes_of(executor))) == ({"found": value}, zygotes)


def sleeping(word: str) -> list[Path]:
    """The processes that sleep for so many seconds."""
    line = f"sleep\0{word}\0".encode()
    return [each.parent for each in Path("/proc").glob("[0-9]*/cmdline") if _read(each) == line]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


STARTS_DAEMON = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 100)
        os.execv("/bin/sleep", ["sleep", "SECONDS"])
    os._exit(0)
os.wait()
"""


async def test_a_daemon_that_a_project_starts_at_import_ends_with_the_look_at_it(
    tmp_path: Path, executor: SpiderExecutor
) -> None:
    more = STARTS_DAEMON.replace("SECONDS", seconds := f"600.{os.getpid()}1")
    await executor.prepare(ready(project(tmp_path / "code", more=more)), tmp_path / "runs", {})
    assert sleeping(seconds) == []


async def test_a_daemon_that_shared_modules_start_ends_with_the_zygote(
    tmp_path: Path, executor: SpiderExecutor
) -> None:
    more = STARTS_DAEMON.replace("SECONDS", seconds := f"600.{os.getpid()}2")
    code = ready(project(tmp_path / "code", settings=SHARED, more=more))
    await executor.prepare(code, tmp_path / "runs", {})
    ended = await executor.execute(attempt(made(tmp_path / "runs" / "1-1"), {"spider": "things"}, code=code))
    assert ended.outcome == "succeeded"
    assert len(sleeping(seconds)) == 1, "others than runs are left to it"
    executor.release()
    await eventually(lambda: not sleeping(seconds))


CROWD = """
import os, time
for number in range(100):
    if os.fork() == 0:
        os.setsid()
        os.execv("/bin/sleep", ["sleep", "SECONDS"])
time.sleep(600)
"""
HOG = """
import os, time
held = b"x" * (500 << 20)
if os.fork() == 0:
    os.setsid()
    os.execv("/bin/sleep", ["sleep", "SECONDS"])
time.sleep(600)
"""


@pytest.mark.parametrize("settings", [SETTINGS, SHARED])
@pytest.mark.parametrize(
    ("act", "why"),
    [(CROWD, r"it had \d+ processes, 64 are allowed"), (HOG, r"it used \d+ MiB of memory, 400 MiB are allowed")],
)
async def test_an_import_that_takes_more_than_a_run_may_is_ended_with_all_that_it_started(
    tmp_path: Path, executor: SpiderExecutor, monkeypatch: pytest.MonkeyPatch, act: str, why: str, settings: str
) -> None:
    monkeypatch.setattr(_zygote, "IMPORTING", Limits(memory_bytes=400 << 20))
    code = ready(
        project(tmp_path / "code", settings=settings, more=act.replace("SECONDS", seconds := f"600.{os.getpid()}3"))
    )
    with pytest.raises(Unready, match=why):
        await executor.prepare(code, tmp_path / "runs", {})
    await eventually(lambda: not sleeping(seconds))


TELLS_LIMITS = """
import resource
names = ("RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CPU")
print("LIMITS", *(resource.getrlimit(getattr(resource, name)) for name in names), flush=True)
"""


async def test_a_project_is_looked_at_with_the_limits_of_a_run(tmp_path: Path, executor: SpiderExecutor) -> None:
    await executor.prepare(ready(project(tmp_path / "code", more=TELLS_LIMITS)), tmp_path / "runs", {})
    (zygote,) = zygotes_of(executor)
    limits = (1280 << 20, 2048 << 20, 1024, 65)
    assert f"LIMITS {' '.join(str((each, each)) for each in limits)}" in b"".join(zygote._said).decode()


async def test_a_run_may_be_allowed_more_than_its_zygote(tmp_path: Path, executor: SpiderExecutor) -> None:
    code, log = ready(project(tmp_path / "code", more=TELLS_LIMITS)), Log()
    limits = {"memory_bytes": 3 << 30, "disk_bytes": 5 << 30, "files": 2000}
    spec = {"spider": "things", "limits": limits}
    await executor.execute(attempt(made(tmp_path / "runs" / "1-1"), spec, code=code, log=log))
    found = (limits["memory_bytes"] + (256 << 20), limits["disk_bytes"], limits["files"])
    assert f"LIMITS {' '.join(str((each, each)) for each in found)} (-1, -1)".encode() in log.data
    assert b"cold start" not in log.data


ESCAPES_MARKS = """
import resource
for number in (10, 15):
    try:
        resource.setrlimit(number, (1, 1))
    except (OSError, ValueError):
        continue
    print("CHANGED", number, flush=True)
"""


async def test_a_project_cannot_lose_the_mark_of_its_zygote(tmp_path: Path, executor: SpiderExecutor) -> None:
    await executor.prepare(ready(project(tmp_path / "code", more=ESCAPES_MARKS)), tmp_path / "runs", {})
    (zygote,) = zygotes_of(executor)
    assert b"CHANGED" not in b"".join(zygote._said)
    shared = ready(project(tmp_path / "shared", settings=SHARED, more=ESCAPES_MARKS), digest="shared")
    await executor.prepare(shared, tmp_path / "runs", {})
    other = next(each for each in zygotes_of(executor) if each is not zygote)
    # Its runs have marks of their own in the second, so in a zygote it is not closed.
    assert b"CHANGED 10" not in b"".join(other._said)
