"""Lanes that are blocked hide none that is not, however many there are."""

from __future__ import annotations

from tests.runs.acting import Hand, new_run
from weft.app import App
from weft.db.database import Transaction
from weft.runs.lanes import tag_limit
from weft.runs.leases import MOST_LANES

BLOCKED = MOST_LANES + 50


async def test_a_free_run_is_found_behind_hundreds_of_blocked_lanes(app: App) -> None:
    """Each blocked run has a tag of its own that allows nothing more; the free one came last, so its lane is last."""

    def block(tx: Transaction) -> None:
        for number in range(BLOCKED):
            app.runs.set_limit(tx, tag_limit("shop", f"t{number}"), 1)

    await app.runs.submit([new_run(tags=(f"t{number}",)) for number in range(BLOCKED)])
    hand = await Hand.join(app)
    assert len(await hand.lease(BLOCKED)) + len(await hand.lease(BLOCKED)) == BLOCKED
    await app.db.transact(block)
    await app.runs.submit([new_run(tags=(f"t{number}",)) for number in range(BLOCKED)])
    (free,) = await app.runs.submit([new_run(project="free")])
    assert [lease.run_id for lease in await hand.lease(10)] == [free.run_id]
