"""The wakeups rings for runs that became ready, and nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Collection, Mapping

import pytest

from tests.conftest import SetClock, on_sqlite
from tests.runs.acting import Hand, set_limit, submit, submit_many
from tests.waiting import eventually
from weft.app import App
from weft.errors import BrokerDown
from weft.runs.lanes import project_limit
from weft.runs.wakeups import Wakeups


class Listening:
    """A broker that remembers what it was rung for, and rings no further while it is held up."""

    reaches_all = True

    def __init__(self) -> None:
        self.rung: list[dict[str, int]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.problem: Exception | None = None

    async def ring(self, queues: Mapping[str, int]) -> None:
        self.rung.append(dict(queues))
        await self.go_on.wait()
        if self.problem is not None:
            raise self.problem

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        return False

    async def close(self) -> None:
        return

    @property
    def heard(self) -> Counter[str]:
        return sum((Counter(queues) for queues in self.rung), Counter())


@pytest.fixture
async def broker() -> Listening:
    return Listening()


@pytest.fixture
async def wakeups(broker: Listening) -> Wakeups:
    wakeups = Wakeups(broker)
    wakeups.attach()
    return wakeups


async def test_what_became_ready_while_a_ring_is_under_way_is_rung_together(
    wakeups: Wakeups, broker: Listening
) -> None:
    broker.go_on.clear()
    wakeups.add("default")
    await eventually(lambda: broker.rung)
    for _ in range(10):
        wakeups.add("default")
    wakeups.add("browser", 3)
    broker.go_on.set()
    await wakeups.flush()
    assert broker.rung == [{"default": 1}, {"default": 10, "browser": 3}]


async def test_the_bell_may_be_touched_from_any_thread(wakeups: Wakeups, broker: Listening) -> None:
    threads = [threading.Thread(target=wakeups.add, args=("default",)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    await wakeups.flush()
    assert broker.heard == {"default": 20}


@pytest.mark.parametrize("problem", [BrokerDown("memory", "gone"), RuntimeError("a fault of the adapter")])
async def test_a_broker_that_fails_is_rung_again_the_next_time(
    wakeups: Wakeups, broker: Listening, problem: Exception
) -> None:
    broker.problem = problem
    broker.go_on.clear()
    wakeups.add("default")
    await eventually(lambda: broker.rung)
    wakeups.add("default")
    broker.go_on.set()
    await wakeups.flush()
    broker.problem = None
    wakeups.add("default")
    await wakeups.flush()
    assert len(broker.rung) == 3


@pytest.fixture
def listened(app: App) -> Listening:
    """What the app's own wakeups rings for."""
    broker = Listening()
    app.wakeups._broker = broker
    return broker


@on_sqlite
async def test_a_submit_rings_for_the_labels_of_its_runs(app: App, listened: Listening) -> None:
    await submit_many(app, 3)
    await submit(app, labels=("eu", "browser"))
    await submit(app, not_before=2**60)
    await app.wakeups.flush()
    assert listened.heard == {"default": 3, "browser+eu": 1}


@on_sqlite
async def test_runs_of_several_lanes_ring_for_all_of_them_when_they_wake(
    app: App, listened: Listening, clock: SetClock
) -> None:
    for tag in "abc":
        await submit(app, tags=(tag,), not_before=clock() + 1)
    clock.forward(1)
    assert await app.runs.wake_waiting() == 3
    await app.wakeups.flush()
    assert listened.heard == {"default": 3}


@on_sqlite
async def test_a_place_that_becomes_free_rings_for_the_run_that_waits_for_it(app: App, listened: Listening) -> None:
    await set_limit(app, project_limit("shop"), 1)
    await submit_many(app, 2)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await app.wakeups.flush()
    before = listened.heard["default"]
    await hand.end(lease)
    await app.wakeups.flush()
    assert listened.heard["default"] > before
