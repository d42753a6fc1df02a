"""What the worker protocol promises, whoever speaks it: many runs a call, nothing for what is no longer held.

Each test is played twice: on the database, and through a gateway that listens on a port.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.conftest import OpenApp, SetClock
from tests.runs.acting import Hand, rows_of, submit, submit_many
from tests.workers.far_away import Speaker, gateway
from weft.app import App
from weft.db import schema
from weft.errors import LeaseLost, NotAllowed, NotFound
from weft.events import newest
from weft.runs.model import Ending
from weft.workers.protocol import Heartbeat, LogChunk, WorkerInfo

Speak = Callable[[App], Awaitable[App]]


@pytest_asyncio.fixture(params=["direct", "remote"])
async def speak(request: pytest.FixtureRequest) -> AsyncIterator[Speak]:
    """Makes an app whose workers speak the protocol as the parameter says."""
    async with AsyncExitStack() as stack:

        async def spoken(app: App) -> App:
            if request.param == "direct":
                return app
            address = await stack.enter_async_context(gateway(app))
            speaker = await stack.enter_async_context(Speaker(app, address))
            return replace(app, protocol=speaker)  # type: ignore[arg-type]

        yield spoken


@pytest_asyncio.fixture
async def app(another_app: OpenApp, speak: Speak) -> App:
    return await speak(await another_app())


async def taken(ending: Awaitable[list[bool]]) -> list[bool]:
    """Which endings were taken; of a worker that may be anybody's the whole call is refused."""
    try:
        return await ending
    except NotAllowed:
        return []


async def told(app: App, kind: str) -> list[str]:
    """The workers that events of one kind name, oldest first."""
    found = await app.db.read(lambda tx: newest(tx, 1000))
    return [event.data["worker"] for event in reversed(found) if event.kind == kind]


async def test_a_worker_that_joins_is_listed_with_its_card(app: App, clock: SetClock) -> None:
    card = WorkerInfo(name="w1", host="here", pid=7, version="1.2", capacity=5, labels=("browser", "eu"))
    worker_id = await app.protocol.join(card)
    worker = await app.workers.get("w1")
    assert (worker.id, worker.host, worker.pid, worker.version, worker.capacity) == (worker_id, "here", 7, "1.2", 5)
    assert (worker.labels, worker.state, worker.started_at) == (("browser", "eu"), "online", clock())
    assert await told(app, "worker_joined") == ["w1"]


async def test_a_worker_that_joins_again_is_another_and_holds_nothing(app: App) -> None:
    await submit(app)
    first = await Hand.join(app, "w1")
    lease = await first.lease_one()
    second = await Hand.join(app, "w1")
    assert second.id != first.id
    assert (await second.beat()).held == ()
    assert (await first.beat()).held == ((lease.run_id, lease.attempt),)
    assert (await app.workers.get("w1")).id == second.id


async def test_a_worker_that_never_was_leases_nothing(app: App) -> None:
    await submit(app)
    with pytest.raises(LeaseLost):
        await app.protocol.lease(12345, 1)
    with pytest.raises(NotFound, match="there is no worker nobody"):
        await app.workers.get("nobody")


async def test_a_beat_keeps_what_the_worker_says_of_itself(app: App, clock: SetClock) -> None:
    hand = await Hand.join(app, "w1")
    clock.forward(3)
    stats = {"breakers": [{"target": "http://shop.example", "state": "open", "failures": 5}]}
    await app.protocol.heartbeat(hand.id, Heartbeat(state="busy", running=4, done=9, stats=stats))
    worker = await app.workers.get("w1")
    assert (worker.state, worker.running, worker.done, worker.stats, worker.seen_at) == ("busy", 4, 9, stats, clock())
    clock.forward(2)
    assert worker.silent_seconds(clock()) == 2


async def test_one_beat_tells_of_every_lease(app: App) -> None:
    await submit_many(app, 30)
    hand, other = await Hand.join(app), await Hand.join(app, "other")
    mine, theirs = await hand.lease(20), await other.lease(20)
    assert set((await hand.beat()).held) == {(lease.run_id, lease.attempt) for lease in mine}
    assert set((await other.beat()).held) == {(lease.run_id, lease.attempt) for lease in theirs}
    await hand.end_all(mine[:5])
    assert len((await hand.beat()).held) == 15


async def test_a_worker_that_was_given_up_for_lost_is_told_so_for_ever(app: App) -> None:
    await submit(app)
    hand = await Hand.join(app)
    await hand.lease()
    await hand.lose()
    for _ in range(2):
        orders = await hand.beat()
        assert (orders.lost, orders.held) == (True, ())
    assert (await app.workers.get("hand")).state == "offline"


async def test_a_worker_that_leaves_is_offline_and_says_so_once(app: App) -> None:
    hand = await Hand.join(app, "w1")
    assert not (await hand.beat("offline")).lost
    assert (await app.workers.get("w1")).state == "offline"
    assert (await hand.beat("offline")).lost
    assert await told(app, "worker_left") == ["w1"]


async def test_a_worker_that_left_long_ago_is_forgotten(app: App, clock: SetClock) -> None:
    gone, there = await Hand.join(app, "gone"), await Hand.join(app, "there")
    await gone.beat("offline")
    assert {worker.name for worker in await app.workers.all()} == {"gone", "there"}
    clock.forward(2 * 3600)
    await there.beat()
    assert {worker.name for worker in await app.workers.all()} == {"there"}
    clock.forward(8 * 86_400)
    assert await app.workers.forget_offline() == 1
    assert [row[0] for row in await rows_of(app, schema.workers)] == [there.id]


async def test_a_live_log_is_read_while_the_attempt_runs(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await hand.ship(lease, b"one\n", 0)
    await hand.ship(lease, b"two\n", 1)
    assert await app.runs.log(run_id) == b"one\ntwo\n"
    assert await app.runs.live_log(run_id, 1, after=0) == [(1, b"two\n")]


async def test_a_piece_that_is_shipped_twice_is_kept_once(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    for _ in range(2):
        await hand.ship(lease, b"one\n", 0)
    assert await app.runs.log(run_id) == b"one\n"


async def test_pieces_of_many_logs_travel_in_one_call(app: App) -> None:
    await submit_many(app, 3)
    hand = await Hand.join(app)
    leases = await hand.lease()
    chunks = [LogChunk(lease.run_id, 1, seq, b"%d;" % seq) for lease in leases for seq in range(3)]
    await app.protocol.ship(hand.id, chunks)
    assert [await app.runs.log(lease.run_id) for lease in leases] == [b"0;1;2;"] * 3


async def test_pieces_of_what_is_held_no_more_are_refused_and_the_others_are_kept(app: App) -> None:
    await submit_many(app, 2)
    lost, hand = await Hand.join(app, "w1"), await Hand.join(app, "w2")
    gone, held = await lost.lease_one(), await hand.lease_one()
    await lost.lose()
    with pytest.raises(LeaseLost):
        await lost.ship(gone, b"late\n")
    with pytest.raises(LeaseLost):
        await app.protocol.ship(hand.id, [LogChunk(each.run_id, 1, 0, b"said\n") for each in (gone, held)])
    assert [await app.runs.log(each.run_id) for each in (gone, held)] == [b"", b"said\n"]


async def test_a_log_may_hold_any_bytes(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    data = bytes(range(256)) * 1000
    await hand.ship(await hand.lease_one(), data)
    assert await app.runs.log(run_id) == data


async def test_the_blob_takes_the_place_of_the_live_log_at_the_end(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await hand.ship(lease, b"one\n")
    await app.blobs.put(f"logs/{run_id}/1.log", b"one\ntwo\n")
    await hand.end(lease, log_key=f"logs/{run_id}/1.log", log_bytes=8)
    assert await app.runs.log(run_id) == b"one\ntwo\n"
    assert await rows_of(app, schema.log_chunks) == []


async def test_every_attempt_keeps_its_own_log(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    for number in (1, 2):
        lease = await hand.lease_one()
        await app.blobs.put(f"logs/{run_id}/{number}.log", b"try %d" % number)
        await hand.end(lease, "released", log_key=f"logs/{run_id}/{number}.log")
    assert [await app.runs.log(run_id, number) for number in (1, 2)] == [b"try 1", b"try 2"]
    assert await app.runs.log(run_id) == b"try 2"


async def test_two_processes_speak_for_their_own_workers(app: App, another_app: OpenApp, speak: Speak) -> None:
    await submit_many(app, 4)
    here, there = await Hand.join(app, "here"), await Hand.join(await speak(await another_app()), "there")
    mine, theirs = await here.lease(2), await there.lease(2)
    assert not {lease.run_id for lease in mine} & {lease.run_id for lease in theirs}
    assert True not in await taken(here.end_all(theirs))
    assert await there.end_all(theirs) == [True, True]


async def test_an_ending_that_is_told_again_is_refused_and_changes_nothing(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    assert await hand.end(lease, exit_code=0, result={"deep": [[[{"pages": 3}]]]})
    assert not await hand.end(lease, "failed")
    run = await app.runs.get(run_id)
    assert (run.state.value, run.exit_code, run.result) == ("succeeded", 0, {"deep": [[[{"pages": 3}]]]})


async def test_a_failure_for_good_is_not_tried_again(app: App) -> None:
    run_id = await submit(app, retries=3)
    hand = await Hand.join(app)
    assert await hand.end(await hand.lease_one(), "failed", reason="no such package", permanent=True)
    run = await app.runs.get(run_id)
    assert (run.state.value, run.reason, run.tries) == ("failed", "no such package", 1)


async def test_a_reason_may_hold_what_is_no_text(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    assert await hand.end(await hand.lease_one(), "failed", reason="it said \udcff\0" + "x" * 5000)
    assert ((await app.runs.get(run_id)).reason or "").startswith("it said ")


async def test_a_lease_brings_all_that_the_run_was_given(app: App) -> None:
    spec = {"argv": ["echo", "größer", {"nested": [1, 2.5, None, True]}]}
    await submit(app, spec=spec, params={"page": 3}, timeout_seconds=7.5, retries=2, correlation_id="c-1")
    lease = await (await Hand.join(app)).lease_one()
    assert (lease.project, lease.task, lease.kind, lease.correlation_id) == ("shop", "prices", "noop", "c-1")
    assert (lease.spec.spec, lease.spec.params, lease.spec.timeout_seconds) == (spec, {"page": 3}, 7.5)
    assert lease.spec.retry.count == 2


async def test_a_run_that_somebody_cancels_is_named_in_the_next_orders(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    await hand.lease_one()
    assert (await hand.beat()).cancel == ()
    await app.runs.cancel(run_id)
    assert (await hand.beat()).cancel == ((run_id, 1),)


async def test_many_large_results_and_logs_travel_in_one_call(app: App) -> None:
    ids = await submit_many(app, 4)
    hand = await Hand.join(app)
    leases = await hand.lease()
    await app.protocol.ship(hand.id, [LogChunk(lease.run_id, 1, 0, b"x" * 256_000) for lease in leases])
    assert len(await app.runs.log(ids[-1])) == 256_000
    result = {"text": "y" * 900_000}
    endings = [Ending(lease.run_id, lease.attempt, "succeeded", result=result) for lease in leases]
    assert await app.protocol.finish(hand.id, endings) == [True] * 4
    assert (await app.runs.get(ids[0])).result == result
