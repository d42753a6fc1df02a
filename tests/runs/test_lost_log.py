"""The log of an attempt whose worker was lost."""

from __future__ import annotations

from tests.runs.acting import Hand, submit
from weft.app import App
from weft.runs import lease_store
from weft.runs.model import Attempt, Lease
from weft.workers.protocol import LogChunk

IN_TIME, LATE = b"before the end\n", b"after it\n"


async def test_what_a_lost_worker_has_shipped_is_kept_beside_the_log_of_the_next_attempt(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await app.protocol.ship(hand.id, [LogChunk(run_id, lease.attempt, 0, b"before the end\n")])
    assert await app.db.transact(lambda tx: app.leases.expire(tx, hand.id, "worker hand went silent")) == 1
    assert await app.runs.log(run_id, attempt=1) == b"before the end\n"
    second = await (await Hand.join(app, "other")).lease_one()
    assert (second.attempt, await app.runs.log(run_id)) == (2, b"")
    assert await app.runs.log(run_id, attempt=1) == b"before the end\n"


async def begun(app: App, name: str = "hand", **fields: object) -> tuple[Hand, Lease]:
    """A worker that has shipped some of the log of its attempt."""
    await submit(app, **fields)
    hand = await Hand.join(app, name)
    lease = await hand.lease_one()
    await hand.ship(lease, IN_TIME)
    return hand, lease


async def bring(hand: Hand, lease: Lease) -> None:
    """Keep all of an attempt's log and tell where it is, as a worker does that was away."""
    key = f"logs/{lease.run_id}/{lease.attempt}.log"
    await hand.app.blobs.put(key, IN_TIME + LATE)
    assert not await hand.end(lease, log_key=key, log_bytes=len(IN_TIME + LATE))


async def is_awaited(app: App, hand: Hand, lease: Lease) -> bool:
    """Whether a gateway takes the log of that attempt from the worker."""
    place = (lease.run_id, lease.attempt)
    return await app.db.read(lambda tx: lease_store.awaits_late_log(tx, place, hand.id, hand.name))


async def first_attempt(app: App, run_id: int) -> Attempt:
    return (await app.runs.attempts(run_id))[0]


async def test_a_log_that_comes_late_is_kept_with_its_attempt_and_changes_nothing_else(app: App) -> None:
    hand, lease = await begun(app)
    await hand.lose()
    second = await (await Hand.join(app, "other")).lease_one()
    before = await app.runs.get(lease.run_id)
    assert await is_awaited(app, hand, lease)
    assert not await is_awaited(app, Hand(app, hand.id + 1, "other"), lease), "who has not executed it"
    await bring(hand, lease)
    assert not await is_awaited(app, hand, lease)
    first = await first_attempt(app, lease.run_id)
    assert (first.outcome, first.late_from, first.log_bytes) == ("lost", len(IN_TIME), len(IN_TIME + LATE))
    assert await app.runs.log(lease.run_id, 1) == IN_TIME + LATE
    assert (await app.runs.get(lease.run_id), await app.runs.log(lease.run_id, 2)) == (before, b"")
    assert second.attempt == before.attempt == 2


async def test_so_is_that_of_a_run_whose_last_attempt_was_lost(app: App) -> None:
    hand, lease = await begun(app, max_losses=1)
    await hand.lose()
    await bring(hand, lease)
    assert (await app.runs.get(lease.run_id)).state == "failed"
    assert (await first_attempt(app, lease.run_id)).late_from == len(IN_TIME)
    assert await app.runs.log(lease.run_id) == IN_TIME + LATE


async def test_so_is_that_of_a_lost_attempt_that_was_followed_by_none(app: App) -> None:
    hand, lease = await begun(app)
    await hand.lose()
    await app.runs.cancel(lease.run_id)
    await bring(hand, lease)
    assert [each.late_from for each in await app.runs.attempts(lease.run_id)] == [len(IN_TIME)]
    assert await app.runs.log(lease.run_id, 1) == IN_TIME + LATE


async def test_a_worker_that_starts_again_may_bring_it_before_anybody_has_missed_the_one_that_was_killed(
    app: App,
) -> None:
    killed, lease = await begun(app)
    started_again = await Hand.join(app, killed.name)
    await bring(started_again, lease)
    assert await app.runs.attempts(lease.run_id) == []
    await killed.lose()
    first = await first_attempt(app, lease.run_id)
    assert (first.outcome, first.late_from) == ("lost", len(IN_TIME))
    assert await app.runs.log(lease.run_id, 1) == IN_TIME + LATE
    second = await started_again.lease_one()
    assert second.attempt == 2
    await started_again.end(second)
    assert [each.late_from for each in await app.runs.attempts(lease.run_id)] == [len(IN_TIME), None]


async def test_nobody_brings_the_log_of_what_another_has_executed_nor_another_than_is_kept(app: App) -> None:
    hand, lease = await begun(app)
    await hand.lose()
    key = f"logs/{lease.run_id}/1.log"
    assert not await (await Hand.join(app, "other")).end(lease, log_key=key, log_bytes=1)
    assert (await first_attempt(app, lease.run_id)).log_key is None
    await bring(hand, lease)
    assert not await hand.end(lease, log_key="logs/another.log", log_bytes=1)
    assert (await first_attempt(app, lease.run_id)).log_key == key
