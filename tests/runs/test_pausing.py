"""Runs that are paused and go on."""

from __future__ import annotations

import pytest

from tests.runs.acting import Hand, submit
from weft.app import App
from weft.errors import Conflict, NotFound
from weft.runs.model import RunState

RESUMABLE = {"spider": "quotes", "resumable": True}


async def test_a_waiting_run_that_is_paused_is_not_leased_until_it_is_resumed(app: App) -> None:
    run_id = await submit(app, spec=RESUMABLE)
    hand = await Hand.join(app)
    paused = await app.pauses.pause(run_id)
    assert (paused.state, paused.not_before) == (RunState.PAUSED, None)
    await app.runs.wake_waiting()
    assert not await hand.lease()
    await app.pauses.resume(run_id)
    assert (await hand.lease_one()).run_id == run_id


async def test_a_running_run_is_asked_at_the_next_heartbeat_and_held_when_it_was_given_back(app: App) -> None:
    run_id = await submit(app, spec=RESUMABLE)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    assert (await app.pauses.pause(run_id)).state is RunState.RUNNING
    assert (await hand.beat()).pause == ((run_id, 1),)
    await hand.end(lease, outcome="released", reason="paused")
    run = await app.runs.get(run_id)
    assert (run.state, run.not_before, run.reason) == (RunState.PAUSED, None, "paused")
    await app.pauses.resume(run_id)
    assert (await hand.lease_one()).attempt == 2
    run = await app.runs.get(run_id)
    assert (run.state, run.reason) == (RunState.RUNNING, None)


async def test_a_run_whose_worker_is_lost_while_it_was_asked_to_pause_is_paused(app: App) -> None:
    run_id = await submit(app, spec=RESUMABLE)
    hand = await Hand.join(app)
    await hand.lease_one()
    await app.pauses.pause(run_id)
    await app.db.transact(lambda tx: app.leases.expire(tx, hand.id, "silent"))
    assert (await app.runs.get(run_id)).state is RunState.PAUSED


async def test_a_pause_that_was_taken_back_in_time_changes_nothing(app: App) -> None:
    run_id = await submit(app, spec=RESUMABLE)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await app.pauses.pause(run_id)
    await app.pauses.resume(run_id)
    assert (await hand.beat()).pause == ()
    await hand.end(lease)
    assert (await app.runs.get(run_id)).state is RunState.SUCCEEDED


async def test_a_paused_run_can_be_cancelled(app: App) -> None:
    run_id = await submit(app, spec=RESUMABLE)
    await app.pauses.pause(run_id)
    assert (await app.runs.cancel(run_id)).state is RunState.CANCELLED
    with pytest.raises(Conflict, match="already finished"):
        await app.pauses.pause(run_id)


async def test_what_cannot_keep_its_place_cannot_be_paused(app: App) -> None:
    run_id = await submit(app)
    with pytest.raises(Conflict, match=f"run {run_id} cannot be paused: only a spider whose spec says resumable"):
        await app.pauses.pause(run_id)


async def test_what_is_not_paused_cannot_be_resumed(app: App) -> None:
    run_id = await submit(app, spec=RESUMABLE)
    with pytest.raises(Conflict, match=f"run {run_id} is not paused"):
        await app.pauses.resume(run_id)


async def test_a_run_that_is_not_there_cannot_be_paused(app: App) -> None:
    with pytest.raises(NotFound):
        await app.pauses.pause(999)
