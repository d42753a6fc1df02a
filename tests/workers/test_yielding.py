"""An attempt that yields items, and what becomes of them when its worker is in trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.workers.test_delivery import SlowStore, Store, delivering
from weft.adapters.blobs.files import FileBlobs
from weft.ports import Breaker, Ended, ReadyCode, Work
from weft.projects.model import Code
from weft.runs.model import Lease, RunSpec
from weft.workers import attempt
from weft.workers import item_delivery as delivery_module
from weft.workers.attempt import ExecutionContext, RunningAttempt, ending_of, execute_attempt
from weft.workers.item_delivery import ItemDelivery
from weft.workers.recovery import deliver_left_behind
from weft.workers.work_dir import run_folders

PINNED = Code("1", "a" * 64, "shop.settings")


class Yields:
    """An executor whose runs yield two items and end, or wait until they are stopped."""

    needs_folder = True

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self.has_yielded = asyncio.Event()

    def check(self, spec: Mapping[str, Any]) -> None:
        return

    def breakers(self) -> Collection[Breaker]:
        return ()

    async def execute(self, work: Work) -> Ended:
        (work.folder / "items").mkdir()
        (work.folder / "items" / "000000000001.jl").write_text("1\n2\n")
        work.log.write(b"hello\n")
        self.has_yielded.set()
        if self._waits:
            await asyncio.Event().wait()
        return Ended(outcome="succeeded")


@asynccontextmanager
async def code_ready(code: Code) -> AsyncIterator[ReadyCode]:
    yield ReadyCode(digest=code.digest, version="1", folder=Path(), settings=code.settings, python=Path())


def begun(folder: Path, executor: Yields, delivery: ItemDelivery) -> tuple[RunningAttempt, asyncio.Task[None]]:
    spec = RunSpec(spec={"spider": "things"}, code=PINNED)
    running = RunningAttempt(Lease(7, 1, "shop", "prices", "spider", "c-1", "", spec), folder / "runs")
    protocol: Any = Store()
    tools = ExecutionContext(lambda kind: executor, FileBlobs(f"file:{folder}/blobs"), code_ready, delivery, protocol)
    running.task = asyncio.create_task(execute_attempt(running, tools))
    return running, running.task


async def test_items_that_cannot_be_stored_are_left_behind_by_a_worker_that_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module, "LEAVING_SECONDS", 0.05)
    store, executor = Store(), Yields()
    store.is_away = True
    async with delivering(store) as delivery:
        running, task = begun(tmp_path, executor, delivery)
        await executor.has_yielded.wait()
        running.stop("drain")
        await asyncio.wait_for(task, 10)
        assert ending_of(running) is None  # it would be told as done, and its items were nowhere
    store.is_away = False
    async with delivering(store) as delivery:
        await deliver_left_behind(tmp_path / "runs", delivery)
    assert store.lines == {(7, 1): [b"1", b"2"]}


async def test_an_attempt_that_was_lost_is_cleared_away_however_slow_the_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "SHORT_GRACE_SECONDS", 0.05)
    store, executor = SlowStore(), Yields(waits=True)
    async with delivering(store) as delivery:
        running, task = begun(tmp_path, executor, delivery)
        await executor.has_yielded.wait()
        running.stop("lost")
        await store.was_asked.wait()
        await asyncio.sleep(0.2)  # the time that it has to stop is over now, and it has stopped
        store.may_answer.set()
        await asyncio.wait_for(task, 10)
    assert store.lines == {(7, 1): [b"1", b"2"]}
    assert run_folders(tmp_path / "runs") == []
