"""Items on their way from a worker's disk to the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually
from weft.errors import DatabaseDown, Invalid
from weft.items.model import ItemBatch
from weft.workers import item_delivery
from weft.workers import item_delivery as delivery_module
from weft.workers.item_delivery import ItemDelivery
from weft.workers.recovery import deliver_left_behind


class Store:
    """The far side of the protocol, as little of it as a delivery speaks to: it may be away, or refuse."""

    def __init__(self) -> None:
        self.lines: dict[tuple[int, int], list[bytes]] = {}
        self.stats: list[dict[str, Any]] = []
        self.is_away = False
        self.refused: set[int] = set()

    async def collect(self, worker_id: int, harvests: Sequence[ItemBatch]) -> list[int]:
        if self.is_away:
            raise DatabaseDown("it is away")
        return [self._take(each) for each in harvests]

    def _take(self, harvest: ItemBatch) -> int:
        if harvest.run_id in self.refused:
            return 0
        kept = self.lines.setdefault((harvest.run_id, harvest.attempt), [])
        kept += harvest.lines.splitlines()[len(kept) + 1 - harvest.first :] if harvest.lines else []
        self.stats += [harvest.stats] if harvest.stats else []
        return len(kept) + 1


class SlowStore(Store):
    """One that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def collect(self, worker_id: int, harvests: Sequence[ItemBatch]) -> list[int]:
        self.was_asked.set()
        await self.may_answer.wait()
        return await super().collect(worker_id, harvests)


@asynccontextmanager
async def delivering(store: Store) -> AsyncIterator[ItemDelivery]:
    protocol: Any = store
    delivery = ItemDelivery(protocol)
    task = asyncio.create_task(delivery.run_forever())
    try:
        yield delivery
    finally:
        task.cancel()
        await asyncio.wait({task})


def write(folder: Path, text: str, first: int = 1) -> None:
    (folder / "items").mkdir(parents=True, exist_ok=True)
    with (folder / "items" / f"{first:012d}.jl").open("a") as file:
        file.write(text)


async def test_an_attempt_is_finished_once_all_of_it_is_stored(tmp_path: Path) -> None:
    store = Store()
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        write(tmp_path, "1\n2\n")
        await delivery.finish(7, 1)
        assert store.lines == {(7, 1): [b"1", b"2"]}


async def test_items_are_stored_while_their_attempt_runs(tmp_path: Path) -> None:
    store = Store()
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        write(tmp_path, "1\n")
        await eventually(lambda: store.lines.get((7, 1)) == [b"1"])
        write(tmp_path, "2\n")
        await eventually(lambda: store.lines[7, 1] == [b"1", b"2"])


async def test_what_is_yielded_last_is_stored_though_the_store_is_slow_to_answer(tmp_path: Path) -> None:
    store = SlowStore()
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        (tmp_path / "stats.json").write_text('{"stats": {"item_scraped_count": 0}}')
        await store.was_asked.wait()
        write(tmp_path, "1\n")
        finishing = asyncio.create_task(delivery.finish(7, 1))
        await asyncio.sleep(0)
        store.may_answer.set()
        await finishing
        assert store.lines == {(7, 1): [b"1"]}


async def test_one_who_catches_up_waits_for_all_that_was_yielded_so_far(tmp_path: Path) -> None:
    store = SlowStore()
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        write(tmp_path, "1\n")
        await store.was_asked.wait()
        write(tmp_path, "2\n")
        catching_up = asyncio.create_task(delivery.catch_up(7, 1))
        await asyncio.sleep(0)
        assert not catching_up.done()
        store.may_answer.set()
        await catching_up
        assert store.lines == {(7, 1): [b"1", b"2"]}
        await delivery.catch_up(8, 1)


async def test_items_wait_for_a_store_that_is_away(tmp_path: Path) -> None:
    store = Store()
    store.is_away = True
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        write(tmp_path, "1\n")
        finishing = asyncio.create_task(delivery.finish(7, 1))
        await asyncio.wait({finishing}, timeout=0.3)
        assert not finishing.done()
        store.is_away = False
        await finishing
        assert store.lines == {(7, 1): [b"1"]}


async def test_the_last_statistics_are_told_also_after_a_failure(tmp_path: Path) -> None:
    store = Store()
    store.is_away = True
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        (tmp_path / "stats.json").write_text('{"stats": {"item_scraped_count": 3}}')
        finishing = asyncio.create_task(delivery.finish(7, 1))
        await asyncio.wait({finishing}, timeout=0.3)
        store.is_away = False
        await finishing
        assert store.stats == [{"item_scraped_count": 3}]


async def test_an_attempt_that_the_store_refuses_keeps_nobody_waiting(tmp_path: Path) -> None:
    store = Store()
    store.refused = {7}
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        write(tmp_path, "1\n")
        await asyncio.wait_for(delivery.finish(7, 1), 10)


async def test_an_attempt_that_yields_nothing_is_finished_at_once() -> None:
    async with delivering(Store()) as delivery:
        await asyncio.wait_for(delivery.finish(7, 1), 10)


async def test_what_a_killed_worker_left_behind_is_stored_and_removed(tmp_path: Path) -> None:
    store = Store()
    write(tmp_path / "7-2", "1\n2\n")
    write(tmp_path / "8-1", "1\n")
    (tmp_path / "not-a-run").mkdir()
    async with delivering(store) as delivery:
        await deliver_left_behind(tmp_path, delivery)
    assert store.lines == {(7, 2): [b"1", b"2"], (8, 1): [b"1"]}
    assert [each.name for each in tmp_path.iterdir()] == ["not-a-run"]


async def test_a_leaving_worker_does_not_wait_for_a_store_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module, "LEAVING_SECONDS", 0.05)
    store, leaving = Store(), asyncio.Event()
    store.is_away = True
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        write(tmp_path, "1\n")
        finishing = asyncio.create_task(delivery.finish(7, 1, leaving))
        await asyncio.wait({finishing}, timeout=0.3)
        assert not finishing.done()
        leaving.set()
        assert not await asyncio.wait_for(finishing, 10)
        assert (tmp_path / "items").is_dir()


async def test_a_leaving_worker_brings_what_the_store_takes(tmp_path: Path) -> None:
    store, leaving = Store(), asyncio.Event()
    leaving.set()
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        write(tmp_path, "1\n2\n")
        assert await delivery.finish(7, 1, leaving)
    assert store.lines == {(7, 1): [b"1", b"2"]}


async def test_what_one_attempt_writes_holds_up_no_other(tmp_path: Path) -> None:
    store = Store()
    write(tmp_path / "bad", "1\n")
    (tmp_path / "bad" / "items" / "mine.jl").write_text("")
    (tmp_path / "bad" / "stats.json").write_text("[" * 200_000)
    write(tmp_path / "good", "1\n")
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path / "bad")
        delivery.add(8, 1, tmp_path / "good")
        await asyncio.wait_for(asyncio.gather(delivery.finish(7, 1), delivery.finish(8, 1)), 10)
    assert store.lines[8, 1] == [b"1"]


class PickyStore(Store):
    """One that takes no call at all in which it dislikes something."""

    async def collect(self, worker_id: int, harvests: Sequence[ItemBatch]) -> list[int]:
        if any(each.run_id == 7 for each in harvests):
            raise Invalid("the call", "7", "it must be another")
        return await super().collect(worker_id, harvests)


async def test_an_attempt_whose_items_are_not_taken_holds_up_no_other(tmp_path: Path) -> None:
    store = PickyStore()
    write(tmp_path / "bad", "1\n")
    write(tmp_path / "good", "1\n")
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path / "bad")
        delivery.add(8, 1, tmp_path / "good")
        await asyncio.wait_for(delivery.finish(8, 1), 10)
    assert store.lines == {(8, 1): [b"1"]}


async def test_a_line_that_no_call_can_carry_is_counted_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_delivery, "MOST_BYTES", 10)
    monkeypatch.setattr(delivery_module, "LARGEST_LINE", 20)
    store = Store()
    write(tmp_path, "1\n" + "x" * 30 + "\n3\n")
    async with delivering(store) as delivery:
        delivery.add(7, 1, tmp_path)
        await asyncio.wait_for(delivery.finish(7, 1), 10)
    assert store.lines == {(7, 1): [b"1", b"null", b"3"]}


async def test_what_is_left_behind_and_not_taken_holds_up_nothing_else(tmp_path: Path) -> None:
    store = PickyStore()
    write(tmp_path / "7-1", "1\n")
    write(tmp_path / "8-1", "1\n")
    async with delivering(store) as delivery:
        leftover = asyncio.create_task(deliver_left_behind(tmp_path, delivery))
        await eventually(lambda: not (tmp_path / "8-1").exists())
        leftover.cancel()
        await asyncio.wait({leftover})
    assert store.lines == {(8, 1): [b"1"]}
    assert (tmp_path / "7-1").exists()
