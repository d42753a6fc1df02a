"""A live log is kept as far as its run may print, whatever the worker ships."""

from __future__ import annotations

from tests.conftest import OpenApp
from tests.runs.acting import Hand, submit
from weft.app import App
from weft.runs.leases import ALLOWANCE
from weft.workers.protocol import LogChunk

MOST = 5_000
PIECE = b"x" * 500


def pieces(run_id: int, count: int, attempt: int = 1, first: int = 0) -> list[LogChunk]:
    return [LogChunk(run_id, attempt, seq, PIECE) for seq in range(first, first + count)]


async def test_a_worker_that_ships_without_end_fills_no_more_than_the_log_of_its_run_may_have(app: App) -> None:
    run_id, other = await submit(app, log_bytes=MOST), await submit(app)
    hand = await Hand.join(app)
    await hand.lease()
    for first in range(0, 100, 20):
        await app.protocol.ship(hand.id, pieces(run_id, 20, first=first) + pieces(other, 1, first=first))
    assert len(await app.runs.log(run_id)) == MOST + ALLOWANCE
    assert len(await app.runs.log(other)) == 5 * len(PIECE)


async def test_another_gateway_counts_what_was_kept_before(app: App, another_app: OpenApp) -> None:
    run_id = await submit(app, log_bytes=MOST)
    hand = await Hand.join(app)
    await hand.lease()
    await app.protocol.ship(hand.id, pieces(run_id, 100))
    other = await another_app()
    await other.protocol.ship(hand.id, pieces(run_id, 100, first=100))
    assert len(await app.runs.log(run_id)) == MOST + ALLOWANCE


async def test_pieces_that_are_shipped_again_and_again_take_no_room(app: App) -> None:
    run_id = await submit(app, log_bytes=MOST)
    hand = await Hand.join(app)
    await hand.lease()
    for _ in range(5):
        await app.protocol.ship(hand.id, pieces(run_id, 8))
    await app.protocol.ship(hand.id, pieces(run_id, 2, first=8))
    assert len(await app.runs.log(run_id)) == MOST


async def test_the_next_attempt_has_all_the_room_again(app: App) -> None:
    run_id = await submit(app, log_bytes=MOST, retries=1, delay_seconds=0)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await app.protocol.ship(hand.id, pieces(run_id, 100))
    await hand.end(lease, "failed")
    await app.runs.wake_waiting()
    [again] = await hand.lease()
    await app.protocol.ship(hand.id, pieces(run_id, 10, again.attempt))
    assert len(await app.runs.live_log(run_id, again.attempt)) == 10
