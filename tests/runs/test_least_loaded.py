"""Runs go to the least busy worker; equals take turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tests.cases import for_each
from tests.conftest import OpenApp
from tests.runs.acting import Hand, submit, submit_many
from tests.waiting import eventually
from tests.workers.acting import Obedient, working
from weft.app import App
from weft.runs import leases
from weft.runs.load_balancing import WorkerLoad, runs_for
from weft.runs.model import Lease
from weft.workers.protocol import Heartbeat, WorkerInfo

PLACES = 8


def load(worker_id: int, running: int, capacity: int = PLACES, newest_run: int = 0) -> WorkerLoad:
    return WorkerLoad(worker_id=worker_id, capacity=capacity, running=running, newest_run=newest_run)


@for_each(
    ("mine", "others", "ready", "share"),
    [
        (load(1, 0), [load(2, 1)], 1, 1),
        (load(1, 1), [load(2, 0)], 1, 0),
        (load(3, 1), [load(2, 0)], 2, 0),  # with the second, either would have two
        (load(1, 1), [load(2, 0)], 3, 1),
        (load(1, 0, newest_run=5), [load(2, 0, newest_run=7)], 1, 1),
        (load(1, 0, newest_run=7), [load(2, 0, newest_run=5)], 1, 0),
        (load(1, 0), [load(2, 0), load(3, 0)], 7, 3),
        (load(3, 0), [load(2, 0), load(1, 0)], 7, 2),
        (load(1, 4), [load(2, 8)], 3, 3),
        (
            load(1, 2, capacity=4),
            [load(2, 3, capacity=16)],
            1,
            0,
        ),  # half of its places are taken
        (load(1, 0, capacity=2), [load(2, 0, capacity=20)], 11, 1),
    ],
)
def test_a_worker_gets_what_would_leave_it_least_busy(
    mine: WorkerLoad, others: list[WorkerLoad], ready: int, share: int
) -> None:
    assert runs_for(mine, others, ready, PLACES) == share


async def join(app: App, name: str, labels: tuple[str, ...] = (), capacity: int = PLACES) -> Hand:
    card = WorkerInfo(name=name, host="here", pid=1, version="0", capacity=capacity, labels=labels)
    return Hand(app, await app.protocol.join(card), name)


async def ask(hand: Hand, want: int = PLACES) -> list[Lease]:
    return await hand.app.protocol.lease(hand.id, want, hesitant=True)


async def test_of_a_burst_each_worker_takes_its_part(app: App, another_app: OpenApp) -> None:
    hands = [await join(app, "w1"), await join(await another_app(), "w2"), await join(app, "w3")]
    await submit_many(app, 9)
    assert [len(await ask(hand)) for hand in hands] == [3, 3, 3]


async def test_what_there_is_enough_of_is_taken_at_once(app: App) -> None:
    first, _ = await join(app, "w1"), await join(app, "w2")
    await submit_many(app, 2 * PLACES)
    assert len(await ask(first)) == PLACES


async def test_a_busier_worker_takes_what_nobody_else_comes_for(app: App) -> None:
    busy, _ = await join(app, "w1"), await join(app, "silent")
    await submit_many(app, 2)
    assert len(await ask(busy)) == 1
    await submit(app)
    assert len(await ask(busy)) == 2


async def test_a_worker_that_leaves_or_lacks_a_label_is_not_waited_for(app: App) -> None:
    able = await join(app, "w1", ("eu",))
    draining, _ = await join(app, "w2", ("eu",)), await join(app, "w3")
    await app.protocol.heartbeat(draining.id, Heartbeat(state="draining", running=0, done=0))
    await submit_many(app, 4, labels=("eu",))
    assert len(await ask(able)) == 4


async def test_runs_beyond_a_limit_are_not_counted(app: App) -> None:
    await app.db.transact(lambda tx: app.runs.set_limit(tx, "project:shop", 4))
    first, second = await join(app, "w1"), await join(app, "w2")
    await submit_many(app, 50)
    assert [len(await ask(first)), len(await ask(second))] == [2, 2]


@pytest.fixture
async def three(app: App, another_app: OpenApp) -> AsyncIterator[dict[str, Obedient]]:
    """Three workers, two of them in one process."""
    apps = {"w1": app, "w2": app, "w3": await another_app()}
    executors = {name: Obedient() for name in apps}
    async with AsyncExitStack() as stack:
        for name, its_app in apps.items():
            worker = working(its_app, executors[name], name=name, capacity=PLACES)
            await stack.enter_async_context(worker)
        await eventually(lambda: all_there(app))
        yield executors


async def all_there(app: App) -> bool:
    return len(await app.workers.all()) == 3


def spread(executors: dict[str, Obedient]) -> list[int]:
    return [len(executor.started) for executor in executors.values()]


async def start(app: App, executors: dict[str, Obedient]) -> int:
    before = sum(spread(executors))
    run_id = await submit(app)
    await eventually(lambda: sum(spread(executors)) == before + 1)
    return run_id


async def test_nine_runs_that_come_one_by_one_are_three_for_each_worker(app: App, three: dict[str, Obedient]) -> None:
    for _ in range(9):
        await start(app, three)
    assert spread(three) == [3, 3, 3]


async def test_short_runs_go_to_workers_in_turns(
    app: App, three: dict[str, Obedient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HESITATION_SECONDS", 5.0)  # whose turn it is may come late on a busy machine
    for _ in range(9):
        run_id = await start(app, three)
        next(executor for executor in three.values() if run_id in executor.ends).end(run_id)
        await eventually(partial(has_ended, app, run_id))
    assert spread(three) == [3, 3, 3]


async def has_ended(app: App, run_id: int) -> bool:
    return (await app.runs.get(run_id)).finished_at is not None


async def test_bursts_leave_workers_no_more_than_two_runs_apart(app: App, three: dict[str, Obedient]) -> None:
    for size in (2, 7, 4):
        await submit_many(app, size)
        await asyncio.sleep(0)
    await eventually(lambda: sum(spread(three)) == 13)
    assert max(spread(three)) - min(spread(three)) <= 2, Counter(spread(three))
