"""Runs of every kind yield the processor to weft."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.executing import Log, attempt
from tests.spiders import project, ready
from tests.waiting import eventually
from weft import bubblewrap
from weft.adapters.executors import _process_groups
from weft.adapters.executors._process import Process
from weft.adapters.executors._process_groups import NICE
from weft.adapters.executors.shell import ShellExecutor
from weft.adapters.executors.spider import SpiderExecutor
from weft.ports import Work

WAITS = "echo here; sleep 60"


def weights(pid: int) -> tuple[int, int | None]:
    """The nice value of a process, and that of its session where the kernel weighs sessions."""
    session = Path(f"/proc/{pid}/autogroup")
    found = re.search(r"nice (-?\d+)", session.read_text()) if session.exists() else None
    return os.getpriority(os.PRIO_PROCESS, pid), int(found[1]) if found else None


LOW = (NICE, NICE if Path("/proc/self/autogroup").exists() else None)


def is_low(pid: int) -> bool:
    return weights(pid) == LOW


async def process_of(folder: Path) -> int:
    """The first process of the run, once it is known."""
    file = folder / "process"
    await eventually(lambda: file.exists() and file.read_text())
    return int(file.read_text().split()[0])


async def watched(doing: asyncio.Task[object], look: Callable[[], object]) -> None:
    try:
        await eventually(look)
    finally:
        doing.cancel()
        await asyncio.wait({doing})


def spider(folder: Path, code_folder: Path, name: str, **more: object) -> Work:
    folder.mkdir(parents=True)
    return attempt(folder, {"spider": name, **more}, code=ready(project(code_folder)), log=Log())


async def test_a_command_and_what_it_starts_yield(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    doing = asyncio.create_task(ShellExecutor().execute(attempt(folder, {"script": WAITS + " & wait"}, log=Log())))
    pid = await process_of(folder)
    await watched(
        doing, lambda: len(_process_groups.members(pid)) > 1 and all(map(is_low, _process_groups.members(pid)))
    )


@pytest.mark.parametrize("isolation", ["L1", "L2"])
async def test_a_spider_yields_warm_or_cold(tmp_path: Path, isolation: str) -> None:
    if isolation == "L2" and not bubblewrap.is_available():
        pytest.skip("bubblewrap does not work here")
    folder, executor = tmp_path / "runs" / "1-1", SpiderExecutor()
    work = spider(folder, tmp_path / "code", "endless", isolation=isolation)
    doing = asyncio.create_task(executor.execute(work))
    try:
        pid = await process_of(folder)
        await watched(doing, lambda: all(map(is_low, tree(pid))))
    finally:
        executor.release()


def tree(pid: int) -> set[int]:
    """A process and all that come from it, in whatever session."""
    found, parents = (
        {pid},
        {int(each): _process_groups.stat(int(each)) for each in os.listdir("/proc") if each.isdigit()},
    )
    while fresh := {each for each, stat in parents.items() if stat and stat.parent in found} - found:
        found |= fresh
    return found


async def test_a_process_of_a_crawl_yields(tmp_path: Path) -> None:
    process = Process(["sleep", "60"], cwd=tmp_path, env={}, sink=lambda _: None)
    doing = asyncio.ensure_future(process.exited())
    try:
        await watched(doing, lambda: is_low(process.id))
    finally:
        await process.end()


async def test_weft_itself_does_not_yield(tmp_path: Path) -> None:
    before = weights(os.getpid())
    await ShellExecutor().execute(attempt(tmp_path / "run", {"script": "true"}, log=Log()))
    assert weights(os.getpid()) == before
