"""Workers that fall silent lose their runs; nobody else does, whatever the clocks say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from tests.conftest import OpenApp, SetClock
from tests.runs.acting import Hand, events_of, submit, submit_many
from weft.app import App
from weft.db.database import Transaction
from weft.events import newest
from weft.runs.model import RunState
from weft.workers import store
from weft.workers.reaper import Reaper

LEASE = 15.0
LOOK_SECONDS = 5.0


@dataclass
class Stopwatch:
    """A monotonic clock that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Watch:
    """A reaper, and the time as it sees it."""

    reaper: Reaper
    stopwatch: Stopwatch

    async def after(self, seconds: float) -> int:
        """Look every few seconds for so long; return how many runs were taken."""
        taken, until = 0, self.stopwatch.now + seconds
        while self.stopwatch.now < until:
            self.stopwatch.now = min(self.stopwatch.now + LOOK_SECONDS, until)
            taken += await self.reaper.tick()
        return taken


def watch_over(app: App, clock: SetClock) -> Watch:
    stopwatch = Stopwatch()
    return Watch(Reaper(app.db, app.leases, clock, lease_seconds=LEASE, monotonic=stopwatch), stopwatch)


@pytest.fixture
def watch(app: App, clock: SetClock) -> Watch:
    return watch_over(app, clock)


async def test_the_runs_of_a_silent_worker_start_elsewhere(app: App, watch: Watch) -> None:
    run_ids = await submit_many(app, 3)
    silent, other = await Hand.join(app, "silent"), await Hand.join(app, "other")
    await silent.lease()
    taken = 0
    for _ in range(4):
        await other.beat()
        taken += await watch.after(5)
    assert taken == 3
    assert {(lease.run_id, lease.attempt) for lease in await other.lease()} == {(run_id, 2) for run_id in run_ids}
    assert (await silent.beat()).lost
    assert (await app.runs.attempts(run_ids[0]))[0].reason == "worker silent went silent"
    lost = [event for event in await app.db.read(lambda tx: newest(tx, 1000)) if event.kind == "worker_lost"]
    assert [event.data for event in lost] == [{"worker": "silent", "worker_id": silent.id, "runs": 3}]


async def test_no_run_is_taken_before_the_lease_is_over(app: App, watch: Watch) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    await hand.lease()
    await watch.reaper.tick()
    assert await watch.after(LEASE - 0.1) == 0
    assert (await app.runs.get(run_id)).state is RunState.RUNNING
    assert await watch.after(0.1) == 1


async def test_a_worker_that_beats_keeps_its_runs_for_ever(app: App, watch: Watch) -> None:
    await submit(app)
    hand = await Hand.join(app)
    await hand.lease()
    for _ in range(10):
        assert await watch.after(5) == 0
        assert not (await hand.beat()).lost


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_step_of_the_wall_clock_takes_no_lease_and_prolongs_none(
    app: App, clock: SetClock, watch: Watch, hours: int
) -> None:
    await submit_many(app, 2)
    beating, silent = await Hand.join(app, "beating"), await Hand.join(app, "silent")
    await beating.lease(1)
    await silent.lease(1)
    await watch.after(2)
    clock.forward(hours * 3600)
    taken = 0
    for _ in range(4):
        await beating.beat()
        taken += await watch.after(5)
    assert taken == 1
    assert not (await beating.beat()).lost
    assert (await silent.beat()).lost


async def test_a_reaper_that_was_asleep_blames_nobody(app: App, watch: Watch) -> None:
    await submit(app)
    hand = await Hand.join(app)
    await hand.lease()
    await watch.after(3)
    watch.stopwatch.now += 3600
    await watch.reaper.tick()
    assert await watch.after(LEASE - 0.1) == 0
    assert await watch.after(0.1) == 1


async def test_a_beat_at_the_last_moment_saves_the_worker(app: App) -> None:
    hand = await Hand.join(app)

    def declare(tx: Transaction) -> str | None:
        return store.declare_offline(tx, hand.id, at_beat=0)

    await hand.beat()
    assert await app.db.transact(declare) is None
    assert not (await hand.beat()).lost


async def test_two_reapers_take_each_run_once(app: App, another_app: OpenApp, clock: SetClock) -> None:
    run_ids = await submit_many(app, 5, max_losses=2)
    silent = await Hand.join(app, "silent")
    await silent.lease()
    watches = [watch_over(app, clock), watch_over(await another_app(), clock)]
    for watch in watches:
        await watch.reaper.tick()
        await watch.after(LEASE - 0.1)
    taken = await asyncio.gather(*(watch.after(0.1) for watch in watches))
    assert sum(taken) == 5
    assert [len(await app.runs.attempts(run_id)) for run_id in run_ids] == [1] * 5


async def test_more_runs_than_one_step_takes_are_all_taken(app: App, watch: Watch) -> None:
    await submit_many(app, 450)
    silent = await Hand.join(app, "silent")
    await silent.lease(450)
    assert await watch.after(LEASE + LOOK_SECONDS) == 450
    assert await app.runs.counts() == {"ready": 450, "waiting": 0, "paused": 0, "running": 0}


async def test_runs_that_a_dead_reaper_left_behind_are_taken(app: App, watch: Watch) -> None:
    run_ids = await submit_many(app, 250)
    silent = await Hand.join(app, "silent")
    await silent.lease(250)
    await app.db.transact(lambda tx: store.declare_offline(tx, silent.id))
    assert await watch.after(LEASE + LOOK_SECONDS) == 0
    while await watch.reaper.take_left_behind():
        pass
    assert (await app.runs.counts())["ready"] == len(run_ids)
    assert "run_retried" in [event.kind for event in await events_of(app, run_ids[0])]


async def test_a_worker_without_runs_is_given_up_too(app: App, watch: Watch) -> None:
    await Hand.join(app, "silent")
    assert await watch.after(LEASE + LOOK_SECONDS) == 0
    assert (await app.workers.get("silent")).state == "offline"
