"""Facts are written with what makes them true, and taken with what acts on them: each once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.conftest import OpenApp
from tests.runs.acting import Hand, submit, submit_many
from tests.waiting import PATIENCE_SECONDS
from weft import events
from weft.app import App
from weft.db.database import Transaction
from weft.events import Fact
from weft.runs.model import RunState


async def finish_runs(app: App, count: int, **fields: object) -> list[int]:
    run_ids = await submit_many(app, count, **fields)
    hand = await Hand.join(app)
    await hand.end_all(await hand.lease())
    return run_ids


async def take(app: App, limit: int = 100) -> list[int | None]:
    return [event.run_id for event in await app.db.transact(lambda tx: events.take(tx, "scheduler", limit))]


async def test_the_end_of_a_task_s_run_lies_in_the_scheduler_s_inbox_once(app: App) -> None:
    run_ids = await finish_runs(app, 3, task_id=4)
    assert await app.db.read(lambda tx: events.waits(tx, "scheduler"))
    assert await take(app) == run_ids
    assert await take(app) == []
    assert not await app.db.read(lambda tx: events.waits(tx, "scheduler"))


async def test_a_run_without_a_task_concerns_no_scheduler(app: App) -> None:
    await finish_runs(app, 2)
    assert await take(app) == []


async def test_an_event_that_was_not_acted_on_lies_there_again(app: App) -> None:
    run_ids = await finish_runs(app, 2, task_id=4)

    def fail(tx: Transaction) -> None:
        assert len(events.take(tx, "scheduler")) == 2
        raise KeyError("not acted on")

    with pytest.raises(KeyError):
        await app.db.transact(fail)
    assert await take(app) == run_ids


async def test_the_oldest_come_first_and_no_more_than_were_asked_for(app: App) -> None:
    run_ids = await finish_runs(app, 5, task_id=4)
    assert [await take(app, 2) for _ in range(4)] == [run_ids[:2], run_ids[2:4], run_ids[4:], []]


async def test_concurrent_readers_take_each_event_once(app: App, another_app: OpenApp) -> None:
    run_ids = await finish_runs(app, 40, task_id=4)
    apps = [app, await another_app()]
    taken = await asyncio.gather(*(take(apps[n % 2], 5) for n in range(16)))
    rest = await take(app)
    assert sorted([*(run_id for batch in taken for run_id in batch if run_id), *filter(None, rest)]) == run_ids


async def test_an_event_that_is_committed_late_is_not_skipped(
    app: App, another_app: OpenApp, database_kind: str
) -> None:
    """Ids are given before the commit, so a lower one may appear after a higher one was taken."""
    other = await another_app()
    written, go_on = threading.Event(), threading.Event()

    def late(tx: Transaction) -> None:
        events.append(tx, [Fact("run_finished", "shop", 1, 4)], at=1)
        written.set()
        if database_kind != "sqlite":  # there the second would never begin
            assert go_on.wait(PATIENCE_SECONDS)

    writing = asyncio.create_task(app.db.transact(late))
    await asyncio.to_thread(written.wait)
    await other.db.transact(lambda tx: events.append(tx, [Fact("run_finished", "shop", 2, 4)], at=1))
    seen = await take(other)
    go_on.set()
    await writing
    assert sorted(filter(None, [*seen, *await take(other)])) == [1, 2]


async def test_a_rolled_back_change_leaves_no_fact(app: App) -> None:
    def fail(tx: Transaction) -> None:
        events.append(tx, [Fact("run_finished", "shop", 1, 4)], at=1)
        raise KeyError("rolled back")

    with pytest.raises(KeyError):
        await app.db.transact(fail)
    assert await app.db.read(lambda tx: events.newest(tx)) == []
    assert await take(app) == []


async def test_data_is_kept_as_it_was(app: App) -> None:
    data = {"reason": "naïve 🕸 % ' \\ \n", "count": 2**40, "list": [None, True, 1.5]}
    facts = [Fact("run_finished", "shop", number, None, data) for number in (1, 2)]
    await app.db.transact(lambda tx: events.append(tx, facts, at=7))
    second, first = await app.db.read(lambda tx: events.newest(tx))
    assert (first.data, second.data, first.run_id, second.run_id) == (data, data, 1, 2)


async def test_every_event_that_is_written_is_of_a_known_kind(app: App) -> None:
    run_ids = await submit_many(app, 4, retries=1)
    await submit(app, skipped="its upstream task failed")
    hand, lost = await Hand.join(app), await Hand.join(app, "lost")
    first, second, third = await hand.lease(3)
    await app.runs.cancel(first.run_id)
    await hand.end(first, "cancelled")
    await hand.end(second, "failed")
    await hand.end(third, "released")
    await lost.lease()
    await lost.lose()
    await hand.beat("offline")
    kinds = {event.kind for event in await app.db.read(lambda tx: events.newest(tx, 1000))}
    assert kinds <= set(events.KINDS)
    assert kinds >= {"run_queued", "run_started", "run_retried", "run_released", "run_finished", "worker_left"}
    assert (await app.runs.get(run_ids[0])).state is RunState.CANCELLED
