"""Where the folders of runs are, and what code of one project can do to those of another."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.executing import attempt
from tests.spiders import project, ready
from weft.adapters.executors import _process_groups
from weft.adapters.executors.spider import SpiderExecutor
from weft.projects.model import Code
from weft.runs.model import Lease, RunSpec
from weft.worker_setup import sweep
from weft.workers.attempt import RunningAttempt
from weft.workers.recovery import left_behind
from weft.workers.work_dir import run_folders

LOOKS = """
try:
    SEEN = open({path!r}).read()
except OSError as problem:
    SEEN = type(problem).__name__
"""

SPIDER = """
import scrapy
import shop


class Looks(scrapy.Spider):
    name = "looks"

    async def start(self):
        yield {"seen": shop.SEEN}
"""


def folder_of(root: Path, run_id: int, digest: str | None) -> Path:
    code = Code("1", digest * 64, "shop.settings") if digest else None
    spec = RunSpec(spec={"spider": "looks"}, code=code)
    return RunningAttempt(Lease(run_id, 1, "shop", "looks", "spider", "c-1", "", spec), root).make_folder()


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    victim = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield victim
    victim.kill()
    victim.wait()


async def test_code_that_is_imported_cannot_read_the_runs_of_other_code(tmp_path: Path) -> None:
    mine, other = folder_of(tmp_path / "runs", 1, "a"), folder_of(tmp_path / "runs", 2, "b")
    (other / "order.json").write_text("a secret")
    more = LOOKS.format(path=str(other / "order.json"))
    code = replace(ready(project(tmp_path / "code", spiders=SPIDER, more=more)), digest="a" * 64)
    executor = SpiderExecutor()
    ended = await executor.execute(attempt(mine, {"spider": "looks"}, code=code))
    executor.release()
    assert ended.result is not None, ended
    (line,) = (mine / "items" / "000000000001.jl").read_text().splitlines()
    seen = json.loads(line)["item"]["seen"]
    assert seen == ("PermissionError" if ended.result["isolation"] == "L1" else "a secret")


def test_the_folders_of_all_runs_are_found(tmp_path: Path) -> None:
    made = [folder_of(tmp_path, 3, None), folder_of(tmp_path, 2, "a"), folder_of(tmp_path, 1, "b")]
    assert run_folders(tmp_path) == made
    for folder in made:
        (folder / "items").mkdir()
    assert left_behind(tmp_path) == made


def test_a_spider_s_word_ends_nobody_else(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    """The worker that comes back kills what its predecessor left running; the folder says what that was."""
    _process_groups.remember(folder_of(tmp_path, 1, "a"), victim.pid, "1:1")
    assert sweep(tmp_path) == 0
    assert victim.poll() is None
    assert run_folders(tmp_path) == []


def test_a_command_that_a_dead_worker_left_is_ended(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    _process_groups.remember(folder_of(tmp_path, 1, None), victim.pid, "1:1")
    assert sweep(tmp_path) == 1
    assert os.WTERMSIG(os.waitpid(victim.pid, 0)[1]) == 9
