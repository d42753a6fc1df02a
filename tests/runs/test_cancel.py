"""Cancel is final, in whichever state it finds the run."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.conftest import OpenApp, SetClock
from tests.db.locks import somebody_waits
from tests.runs.acting import Hand, facts, submit
from tests.waiting import PATIENCE_SECONDS, eventually
from weft.app import App
from weft.db.database import Transaction
from weft.errors import Conflict, NotFound
from weft.runs.model import Ending, RunState


async def test_a_queued_run_is_cancelled_at_once(app: App, clock: SetClock) -> None:
    run_id = await submit(app)
    run = await app.runs.cancel(run_id, "not needed")
    assert (run.state, run.outcome, run.reason, run.finished_at) == (
        RunState.CANCELLED,
        "cancelled",
        "not needed",
        clock(),
    )
    assert await (await Hand.join(app)).lease() == []
    assert await facts(app, run_id) == ["run_queued", "run_finished"]


async def test_a_run_that_waits_for_its_retry_is_cancelled_and_not_woken(app: App, clock: SetClock) -> None:
    run_id = await submit(app, retries=3)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), "failed")
    assert (await app.runs.cancel(run_id)).state is RunState.CANCELLED
    clock.forward(86_400)
    assert (await app.runs.wake_waiting(), await hand.lease()) == (0, [])


async def test_the_worker_of_a_running_run_is_told_at_its_next_beat(app: App) -> None:
    run_id, other = await submit(app), await submit(app)
    hand = await Hand.join(app)
    first, second = await hand.lease()
    assert (await hand.beat()).cancel == ()
    run = await app.runs.cancel(run_id)
    assert (run.state, run.cancel_requested) == (RunState.RUNNING, True)
    orders = await hand.beat()
    assert orders.cancel == ((run_id, first.attempt),)
    assert set(orders.held) == {(run_id, first.attempt), (other, second.attempt)}


@pytest.mark.parametrize("outcome", ["failed", "timeout", "cancelled", "released"])
async def test_a_run_that_was_asked_to_stop_is_cancelled_however_its_attempt_ends(app: App, outcome: str) -> None:
    run_id = await submit(app, retries=5)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await app.runs.cancel(run_id)
    assert await hand.end(lease, outcome)
    run = await app.runs.get(run_id)
    assert (run.state, run.outcome) == (RunState.CANCELLED, "cancelled")
    assert await hand.lease() == []


async def test_a_cancelled_run_does_not_come_back_with_the_loss_of_its_worker(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    await hand.lease()
    await app.runs.cancel(run_id)
    await hand.lose()
    assert (await app.runs.get(run_id)).state is RunState.CANCELLED
    assert await (await Hand.join(app, "other")).lease() == []


async def test_a_run_that_succeeds_before_the_word_reaches_it_has_succeeded(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await app.runs.cancel(run_id)
    await hand.end(lease, "succeeded")
    assert (await app.runs.get(run_id)).state is RunState.SUCCEEDED


async def test_cancelling_twice_asks_twice_and_changes_nothing(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await app.runs.cancel(run_id)
    assert (await app.runs.cancel(run_id)).state is RunState.RUNNING
    await hand.end(lease, "cancelled")
    assert (await app.runs.get(run_id)).state is RunState.CANCELLED


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
async def test_an_ended_run_cannot_be_cancelled(app: App, outcome: str) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), outcome)
    before = await app.runs.get(run_id)
    with pytest.raises(Conflict, match=rf"run {run_id} has already finished \({outcome}\)"):
        await app.runs.cancel(run_id)
    assert await app.runs.get(run_id) == before


async def test_a_run_that_does_not_exist_cannot_be_cancelled(app: App) -> None:
    with pytest.raises(NotFound):
        await app.runs.cancel(1)


async def test_a_cancel_that_meets_a_release_half_way_still_wins(
    app: App, another_app: OpenApp, database_url: str
) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    other = await another_app()
    written, go_on = threading.Event(), threading.Event()

    def release(tx: Transaction) -> None:
        app.leases._endings.finish(tx, [(hand.id, [Ending(run_id, lease.attempt, "released")])])
        written.set()
        assert go_on.wait(PATIENCE_SECONDS)

    releasing = asyncio.create_task(app.db.transact(release))
    await asyncio.to_thread(written.wait)
    cancelling = asyncio.create_task(other.runs.cancel(run_id))
    await eventually(lambda: somebody_waits(database_url))
    go_on.set()
    await asyncio.gather(releasing, cancelling)
    assert (await app.runs.get(run_id)).state is RunState.CANCELLED


async def test_cancels_that_meet_leases_leave_no_run_behind(app: App, another_app: OpenApp) -> None:
    run_ids = [await submit(app) for _ in range(30)]
    other = await another_app()
    hand = await Hand.join(other)
    cancels = [app.runs.cancel(run_id) for run_id in run_ids]
    leasing = asyncio.gather(*(hand.lease(5) for _ in range(8)))
    await asyncio.gather(*cancels, leasing)
    leases = [lease for batch in leasing.result() for lease in batch]
    told = set((await hand.beat()).cancel)
    assert told == {(lease.run_id, lease.attempt) for lease in leases}
    assert all(await hand.end_all(leases, "cancelled")) or not leases
    assert {(await app.runs.get(run_id)).state for run_id in run_ids} == {RunState.CANCELLED}
