"""Replies: what senders are told of their messages, at once and when the run has ended, at least once each.

``replies`` has a row for everybody who waits for the end of a run, until they were told. Who replies looks at all of
them once, and from then on only at runs of which an event says that they have ended. One process leads to save work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from weft import events, metrics
from weft.clock import Clock, Moment
from weft.db.database import Database
from weft.envelope import Envelope
from weft.errors import InboxDown
from weft.events import Event
from weft.intake import reply_store as store
from weft.intake.model import End, Outcome, Taken
from weft.intake.reply_store import Waiting
from weft.metrics import Meter
from weft.ports import Inbox, Reply
from weft.position import WINDOW, Position
from weft.tasks.leader import Leader

ACTION = "spider_status"
MOST_AT_ONCE = 500
TELLING = frozenset({"run_finished", "letter_resubmitted"})
"""The events after which somebody may be told; a letter may be resubmitted when its run has long ended."""

Due = list[tuple[Waiting, End]]


def role_of(source: str) -> str:
    """What the leader of an inbox's replies is called."""
    return f"replies:{hashlib.sha256(source.encode()).hexdigest()[:16]}"


def first_reply(taken: Taken, at: Moment) -> Reply:
    """Whether a message was accepted."""
    task_id = taken.order.task_id if taken.order is not None else None
    payload: dict[str, Any] = {"task_id": task_id, "status": "accepted", "run_id": taken.run_id}
    if taken.outcome is Outcome.DEAD:
        payload = {"task_id": task_id, "status": "refused", "reason": taken.reason, "letter_id": taken.letter_id}
    return _reply(taken.message.reply_to, taken.message.correlation_id, payload, at)


def end_reply(to: str, correlation_id: str, task_id: str, run_id: int, end: End, at: Moment) -> Reply:
    """How a run ended."""
    payload = {"task_id": task_id, "status": end.state, "run_id": run_id, "outcome": end.outcome}
    return _reply(to, correlation_id, payload | {"reason": end.reason, "items": end.items}, at)


def _reply(to: str, correlation_id: str, payload: dict[str, Any], at: Moment) -> Reply:
    body = Envelope.of(ACTION, payload, at=at, correlation_id=correlation_id).encode()
    return Reply(to=to, correlation_id=correlation_id, body=body)


class Replier:
    """Tells the senders of one inbox how their runs ended."""

    def __init__(self, db: Database, inbox: Inbox, leader: Leader, meter: Meter, clock: Clock) -> None:
        self._db, self._inbox, self._leader, self._meter, self._clock = db, inbox, leader, meter, clock
        self._position: Position | None = None

    async def tick(self) -> int:
        """Tell of all runs that have ended since the last call; return how many."""
        source = self._inbox.name
        if not await self._leader.leads() or not await self._db.read(lambda tx: store.is_awaited(tx, source)):
            self._position = None
            return 0
        position, self._position = self._position, None  # whatever goes wrong, all are looked at again
        try:
            if position is None:
                position, count = await self._tell_all()
            else:
                count = await self._tell_news(position)
        except InboxDown:
            return 0  # the receiver says so, once
        self._position = position
        return count

    async def close(self) -> None:
        await self._leader.resign()

    async def _tell_all(self) -> tuple[Position, int]:
        """Tell of every run that has ended; what ends meanwhile is beyond the position that was taken before."""
        now = self._clock()
        newest = await self._db.read(lambda tx: events.newest_ids(tx, WINDOW))
        position = Position.at_end(newest, now)
        source, last, count = self._inbox.name, 0, 0
        while due := await self._db.read(partial(store.ended, source=source, after=last, limit=MOST_AT_ONCE)):
            count += await self._tell(due)
            last = due[-1][0].run_id
        return position, count

    async def _tell_news(self, position: Position) -> int:
        count = 0
        while True:
            high, missing, now = position.high, position.missing, self._clock()
            found = await self._db.read(partial(events.beyond, high=high, missing=missing, limit=MOST_AT_ONCE))
            fresh = [event for event in found if position.take(event.id, event.at, now)]
            position.give_up(now)
            count += await self._tell(await self._due(fresh))
            if len(found) < MOST_AT_ONCE:
                return count

    async def _due(self, fresh: Sequence[Event]) -> Due:
        ended = {event.run_id for event in fresh if event.kind in TELLING and event.run_id is not None}
        return await self._db.read(lambda tx: store.ended_of(tx, self._inbox.name, ended)) if ended else []

    async def _tell(self, due: Sequence[tuple[Waiting, End]]) -> int:
        if not due:
            return 0
        now = self._clock()
        replies = [end_reply(who.reply_to, who.correlation_id, who.task_id, who.run_id, end, now) for who, end in due]
        await self._inbox.reply(replies)
        await self._db.transact(lambda tx: store.remove(tx, [who for who, _ in due]))
        self._meter.count(metrics.INTAKE_REPLIES, self._inbox.name, by=len(replies))
        return len(replies)
