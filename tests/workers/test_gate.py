"""The gate: workers that come through a gateway share transactions, and nothing else."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from tests.conftest import SetClock
from tests.projects.making import a_version
from tests.runs.acting import Hand, submit, submit_many
from weft.access.model import Caller
from weft.app import App
from weft.errors import Invalid, LeaseLost, NotAllowed
from weft.items.model import ItemBatch
from weft.logs.storage import open_log
from weft.projects.model import FreshCode
from weft.runs.model import Lease, RunState
from weft.tasks.model import ProjectSettings
from weft.workers import store
from weft.workers.protocol import Heartbeat, HeartbeatReply, LogChunk, WorkerInfo
from weft.workers.remote import wire
from weft.workers.remote.server import MOST_ALERTS

BEAT = Heartbeat(state="online", running=1, done=0)


async def enter(app: App, name: str) -> tuple[Caller, int]:
    """A worker with a key of its own."""
    key, _ = await app.keys.create(name, {}, by="test", kind="worker")
    return await enter_again(app, Caller(name=name, kind="worker", id=key.id), key.prefix + "0000")


async def enter_again(app: App, caller: Caller, request_id: str) -> tuple[Caller, int]:
    card = WorkerInfo(name=caller.name, host="far", pid=1, version="0", capacity=1)
    return caller, await app.worker_gateway.join(caller, card, request_id)


async def test_beats_that_come_together_are_answered_each_for_itself(app: App) -> None:
    holding, stopping, lost, idle = [await enter(app, name) for name in ("holding", "stopping", "lost", "idle")]
    kept, cancelled = await submit(app), await submit(app)
    [first] = await app.worker_gateway.lease(*holding, 1)
    [second] = await app.worker_gateway.lease(*stopping, 1)
    assert (first.run_id, second.run_id) == (kept, cancelled)
    await app.runs.cancel(cancelled)
    await app.db.transact(lambda tx: store.declare_offline(tx, lost[1]))

    beating = [app.worker_gateway.heartbeat(*worker, BEAT) for worker in (stopping, idle, lost, holding)]
    assert await asyncio.gather(*beating) == [
        HeartbeatReply(held=((cancelled, 1),), cancel=((cancelled, 1),)),
        HeartbeatReply(),
        HeartbeatReply(lost=True),
        HeartbeatReply(held=((kept, 1),)),
    ]
    beats = await app.db.read(store.beats)
    assert beats == {holding[1]: 1, stopping[1]: 1, idle[1]: 1}


async def test_a_worker_that_says_goodbye_among_others_is_told_of_alone(app: App) -> None:
    leaving, staying = await enter(app, "leaving"), await enter(app, "staying")
    goodbye = Heartbeat(state="offline", running=0, done=0)
    await asyncio.gather(app.worker_gateway.heartbeat(*staying, BEAT), app.worker_gateway.heartbeat(*leaving, goodbye))
    assert {worker.name: worker.state for worker in await app.workers.all()} == {
        "leaving": "offline",
        "staying": "online",
    }


async def test_pieces_of_a_log_are_kept_while_their_attempt_is_held_and_not_after(app: App) -> None:
    dying, working = await enter(app, "dying"), await enter(app, "working")
    await submit(app), await submit(app)
    [left], [held] = [await app.worker_gateway.lease(*worker, 1) for worker in (dying, working)]
    piece = bytes(wire.PIECE)
    for worker, lease in ((dying, left), (working, held)):
        await app.worker_gateway.upload(*worker, lease.run_id, 1, data=piece, offset=0, total=wire.PIECE + 4)
    assert await app.worker_gateway.forget_uploads() == 0

    await app.db.transact(lambda tx: app.leases.expire(tx, dying[1], "it went silent"))
    assert await app.worker_gateway.forget_uploads() == 1
    assert await app.blobs.keys("uploads") == [f"uploads/{held.run_id}/1"]
    whole = await app.worker_gateway.upload(
        *working, held.run_id, 1, data=b"end\n", offset=wire.PIECE, total=wire.PIECE + 4
    )
    assert (whole, await app.blobs.keys("uploads")) == (wire.PIECE + 4, [])
    log = await open_log(app.blobs, f"logs/{held.run_id}/1.log")
    assert log is not None
    assert await log.whole() == piece + b"end\n"
    assert await app.blobs.keys(f"logs/{left.run_id}") == []


async def test_a_call_that_forges_much_leaves_few_alerts(app: App, caplog: pytest.LogCaptureFixture) -> None:
    victim, forger = await enter(app, "victim"), await enter(app, "forger")
    ids = await submit_many(app, 20)
    await app.worker_gateway.lease(*victim, 20)
    chunks = [LogChunk(run_id, 1, seq, b"forged") for run_id in ids for seq in range(3)]
    with caplog.at_level(logging.WARNING, logger="weft.workers.remote.server"):
        with pytest.raises(NotAllowed, match="may not ship to run"):
            await app.worker_gateway.ship(*forger, chunks)
        told = [str(vars(record)["what"]) for record in caplog.records]
        assert told == [f"ship to run {run_id}" for run_id in sorted(ids)[:MOST_ALERTS]]
        await app.worker_gateway.ship(*victim, chunks)
    assert len(caplog.records) == MOST_ALERTS
    assert [await app.runs.log(run_id) for run_id in ids] == [b"forged" * 3] * 20


async def test_a_write_to_a_run_that_another_holds_is_refused_and_what_is_its_own_is_taken(app: App) -> None:
    victim, forger = await enter(app, "victim"), await enter(app, "forger")
    await submit_many(app, 2)
    [theirs], [own] = [await app.worker_gateway.lease(*worker, 1) for worker in (victim, forger)]
    chunks = [LogChunk(each.run_id, each.attempt, 0, b"said") for each in (own, theirs)]
    endings = [wire.EndingReport(each.run_id, each.attempt, "succeeded") for each in (own, theirs)]
    with pytest.raises(NotAllowed, match=f"may not ship to run {theirs.run_id}, which another worker holds"):
        await app.worker_gateway.ship(*forger, chunks)
    assert (await app.runs.log(own.run_id), await app.runs.log(theirs.run_id)) == (b"said", b"")
    with pytest.raises(NotAllowed, match="give items to"):
        await app.worker_gateway.collect(*forger, [harvest(theirs)])
    with pytest.raises(NotAllowed, match=f"may not end run {theirs.run_id}"):
        await app.worker_gateway.finish(*forger, endings)
    states = [(await app.runs.get(each.run_id)).state for each in (own, theirs)]
    assert states == [RunState.SUCCEEDED, RunState.RUNNING]
    assert await app.worker_gateway.finish(*victim, endings[1:]) == [True]


async def test_a_straggler_is_answered_that_the_run_is_not_its_own_any_more(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    slow, other = await enter(app, "slow"), await enter(app, "other")
    run_id = await submit(app)
    [lease] = await app.worker_gateway.lease(*slow, 1)
    again = await enter_again(app, slow[0], "0123456789abcdef")
    late = [wire.EndingReport(run_id, lease.attempt, "succeeded")]
    with caplog.at_level(logging.WARNING, logger="weft.workers.remote.server"):
        assert await app.worker_gateway.finish(*again, late) == [False], (
            "it joined again, and its earlier self still holds the run"
        )
        await app.db.transact(lambda tx: app.leases.expire(tx, slow[1], "it went silent"))
        assert await app.worker_gateway.finish(*slow, late) == [False], "nobody holds it"
        [next_] = await app.worker_gateway.lease(*other, 1)
        assert (next_.run_id, next_.attempt) == (run_id, 2)
        assert await app.worker_gateway.finish(*slow, late) == [False], "another holds the next attempt"
        with pytest.raises(LeaseLost, match=f"does not hold attempt 1 of run {run_id}; nothing of that was kept"):
            await app.worker_gateway.ship(*slow, [LogChunk(run_id, lease.attempt, 0, b"late")])
    assert caplog.records == []
    assert (await app.runs.get(run_id)).state is RunState.RUNNING


def harvest(lease: Lease, first: int = 1) -> ItemBatch:
    return ItemBatch(lease.run_id, lease.attempt, first, b'{"item":{"n":1}}\n')


async def test_items_come_late_from_the_same_key_and_from_no_other_of_its_name(app: App) -> None:
    await submit(app)
    home = await enter(app, "home")
    [lease] = await app.worker_gateway.lease(*home, 1)
    assert await app.worker_gateway.collect(*home, [harvest(lease)]) == [2]
    await app.worker_gateway.finish(*home, [wire.EndingReport(lease.run_id, lease.attempt, "succeeded")])

    restarted = await enter_again(app, home[0], "0123456789abcdef")
    assert await app.worker_gateway.collect(*restarted, [harvest(lease, 2)]) == [3]
    impostor = await enter(app, "home")
    assert await app.worker_gateway.collect(*impostor, [harvest(lease, 3)]) == [0]


async def test_a_worker_that_starts_again_goes_on_though_another_has_its_name(app: App) -> None:
    await submit(app)
    await Hand.join(app, "home")
    home = await enter(app, "home")
    [lease] = await app.worker_gateway.lease(*home, 1)
    restarted = await enter_again(app, home[0], "0123456789abcdef")
    assert await app.worker_gateway.collect(*restarted, [harvest(lease)]) == [2]


async def test_a_key_gives_no_items_to_runs_of_a_worker_here_that_has_its_name(app: App) -> None:
    await submit(app)
    hand = await Hand.join(app, "here")
    lease = await hand.lease_one()
    await hand.end(lease)
    impostor = await enter(app, "here")
    assert await app.worker_gateway.collect(*impostor, [harvest(lease)]) == [0]


async def test_a_key_gives_no_items_to_runs_from_before_it_was_made(app: App, clock: SetClock) -> None:
    await submit(app)
    long_gone = await enter(app, "home")
    [lease] = await app.worker_gateway.lease(*long_gone, 1)
    await app.worker_gateway.finish(*long_gone, [wire.EndingReport(lease.run_id, lease.attempt, "succeeded")])
    await app.db.transact(lambda tx: store.declare_offline(tx, long_gone[1]))
    clock.now += 1_000_000
    await app.db.transact(lambda tx: store.forget(tx, clock.now))
    impostor = await enter(app, "home")
    assert await app.worker_gateway.collect(*impostor, [harvest(lease)]) == [0]


async def test_more_lines_than_any_worker_sends_are_refused(app: App) -> None:
    home = await enter(app, "home")
    with pytest.raises(Invalid, match="lines in all"):
        await app.worker_gateway.collect(*home, [ItemBatch(1, 1, 1, b"\n" * 200_000)])
    with pytest.raises(Invalid, match="harvests"):
        await app.worker_gateway.collect(*home, [ItemBatch(1, 1)] * 20_000)
    with pytest.raises(LeaseLost):
        await app.worker_gateway.collect(home[0], 999, [ItemBatch(1, 1)])


async def test_a_worker_elsewhere_is_not_told_what_others_deploy(app: App, clock: SetClock) -> None:
    here, home = await Hand.join(app), await enter(app, "home")
    version = await a_version(app, "shop", at=clock.now)
    assert (await here.beat()).prepare == (FreshCode(version.code),)
    assert (await app.worker_gateway.heartbeat(*home, BEAT)).prepare == ()


async def test_a_worker_is_told_which_isolation_a_deployed_version_demands(app: App, clock: SetClock) -> None:
    await app.tasks.configure("shop", ProjectSettings(min_isolation="L2"))
    here, version = await Hand.join(app), await a_version(app, "shop", at=clock.now)
    assert (await here.beat()).prepare == (FreshCode(msgspec.structs.replace(version.code, min_isolation="L2")),)
