"""The log of an attempt whose worker was lost."""

from __future__ import annotations

from tests.runs.acting import Hand, submit
from weft.app import App
from weft.workers.protocol import LogChunk


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
