"""The heartbeat's answers: obeyed in the worker's loop, and only by the one whom they are for."""

from __future__ import annotations

import asyncio
import time

from tests.conftest import on_sqlite
from tests.runs.acting import Hand
from tests.waiting import PATIENCE_SECONDS, eventually
from weft.app import App
from weft.workers.heartbeat import Heartbeats
from weft.workers.protocol import Heartbeat, HeartbeatReply


@on_sqlite
async def test_a_busy_worker_is_told_once_that_it_was_lost(app: App) -> None:
    hand = await Hand.join(app)
    await hand.lose()
    heartbeats = Heartbeats(app.protocol, every_seconds=0.001)
    beats: list[Heartbeat] = []
    told: list[HeartbeatReply] = []

    def beat() -> Heartbeat:
        beats.append(Heartbeat(state="online", running=0, done=0))
        return beats[-1]

    def obey(orders: HeartbeatReply) -> None:
        told.append(orders)
        heartbeats.remove(hand.id)

    heartbeats.add(hand.id, beat, obey)
    be_busy_until_there_are(4, beats)
    await eventually(lambda: told)
    heartbeats.close()
    await asyncio.sleep(0)
    assert len(beats) >= 4
    assert told == [HeartbeatReply(lost=True)]


def be_busy_until_there_are(count: int, beats: list[Heartbeat]) -> None:
    """Hold up the worker's loop; the heartbeat has a thread of its own."""
    until = time.monotonic() + PATIENCE_SECONDS
    while len(beats) < count and time.monotonic() < until:
        time.sleep(0.001)
