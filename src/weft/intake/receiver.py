"""Receives messages from a queue, and replies to their senders, at once and when their runs have ended.

The order is commit, reply, acknowledge. Whatever is cut off in between gives the message again, and its task_id makes
it the same run. A queue that is down is tried again for ever; while the database is down messages stay where they are.

``replies`` has a row for everybody who waits for the end of a run, until the reply was sent, at least once. All of
them are read once, and from then on only runs of which an event says that they have ended. One process leads to save
work.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from weft import events, metrics
from weft.clock import Clock, Moment
from weft.cursor import WINDOW, Cursor
from weft.db.database import Database
from weft.envelope import Envelope
from weft.errors import DatabaseDown, InboxDown, Invalid
from weft.events import Event
from weft.intake import store
from weft.intake.intake import Intake
from weft.intake.model import MessageOutcome, ReceivedMessage, RunEnd, check_reply_address
from weft.intake.store import AwaitedReply
from weft.metrics import Meter
from weft.ports import Message, MessageSource, Reply
from weft.tasks.leader import Leader

REPLY_ACTION = "spider_status"
MOST_REPLIES = 500
REPLY_EVENTS = frozenset({"run_finished", "dead_letter_resubmitted"})
"""The events after which somebody may be told; a dead letter may be resubmitted when its run has long ended."""

DueReplies = list[tuple[AwaitedReply, RunEnd]]


def replier_role(source: str) -> str:
    """What the leader of an inbox's replies is called."""
    return f"replies:{hashlib.sha256(source.encode()).hexdigest()[:16]}"


def first_reply(taken: ReceivedMessage, at: Moment) -> Reply:
    """Whether a message was accepted."""
    task_id = taken.order.task_id if taken.order is not None else None
    payload: dict[str, Any] = {"task_id": task_id, "status": "accepted", "run_id": taken.run_id}
    if taken.outcome is MessageOutcome.DEAD:
        payload = {
            "task_id": task_id,
            "status": "refused",
            "reason": taken.reason,
            "dead_letter_id": taken.dead_letter_id,
        }
    return _reply(taken.message.reply_to, taken.message.correlation_id, payload, at)


def end_reply(to: str, correlation_id: str, task_id: str, run_id: int, end: RunEnd, at: Moment) -> Reply:
    """How a run ended."""
    payload = {"task_id": task_id, "status": end.state, "run_id": run_id, "outcome": end.outcome}
    return _reply(to, correlation_id, payload | {"reason": end.reason, "items": end.items}, at)


def _reply(to: str, correlation_id: str, payload: dict[str, Any], at: Moment) -> Reply:
    body = Envelope.of(REPLY_ACTION, payload, at=at, correlation_id=correlation_id).encode()
    return Reply(to=to, correlation_id=correlation_id, body=body)


class ReplySender:
    """Tells the senders of one inbox how their runs ended."""

    def __init__(self, db: Database, inbox: MessageSource, leader: Leader, meter: Meter, clock: Clock) -> None:
        self._db, self._inbox, self._leader, self._meter, self._clock = db, inbox, leader, meter, clock
        self._position: Cursor | None = None

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

    async def _tell_all(self) -> tuple[Cursor, int]:
        """Tell of every run that has ended; what ends meanwhile is beyond the position that was taken before."""
        now = self._clock()
        newest = await self._db.read(lambda tx: events.newest_ids(tx, WINDOW))
        position = Cursor.at_end(newest, now)
        source, last, count = self._inbox.name, 0, 0
        while due := await self._db.read(partial(store.ended_runs, source=source, after=last, limit=MOST_REPLIES)):
            count += await self._tell(due)
            last = due[-1][0].run_id
        return position, count

    async def _tell_news(self, position: Cursor) -> int:
        count = 0
        while True:
            high, missing, now = position.high, position.missing, self._clock()
            found = await self._db.read(partial(events.beyond, high=high, missing=missing, limit=MOST_REPLIES))
            fresh = [event for event in found if position.take(event.id, event.at, now)]
            position.give_up(now)
            count += await self._tell(await self._due(fresh))
            if len(found) < MOST_REPLIES:
                return count

    async def _due(self, fresh: Sequence[Event]) -> DueReplies:
        ended = {event.run_id for event in fresh if event.kind in REPLY_EVENTS and event.run_id is not None}
        return await self._db.read(lambda tx: store.ended_runs_of(tx, self._inbox.name, ended)) if ended else []

    async def _tell(self, due: Sequence[tuple[AwaitedReply, RunEnd]]) -> int:
        if not due:
            return 0
        now = self._clock()
        replies = [end_reply(who.reply_to, who.correlation_id, who.task_id, who.run_id, end, now) for who, end in due]
        await self._inbox.reply(replies)
        await self._db.transact(lambda tx: store.remove_awaited(tx, [who for who, _ in due]))
        self._meter.count(metrics.INTAKE_REPLIES, self._inbox.name, by=len(replies))
        return len(replies)


log = logging.getLogger(__name__)

MOST_AT_ONCE = 200
LISTEN_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
FULL_PAUSE = 0.5
"""How long nothing is received where everything that came was for later."""
LATER_PER_SECOND = 1000
"""How many messages are put back in a second beside others that are taken."""

OUTCOME_METRICS = {
    MessageOutcome.ACCEPTED: metrics.INTAKE_ACCEPTED,
    MessageOutcome.KNOWN: metrics.INTAKE_KNOWN,
    MessageOutcome.DEAD: metrics.INTAKE_DEAD,
    MessageOutcome.LATER: metrics.INTAKE_LATER,
}


class MessageReceiver:
    def __init__(self, inbox: MessageSource, intake: Intake, meter: Meter, clock: Clock) -> None:
        self.inbox, self._intake, self._meter, self._clock = inbox, intake, meter, clock
        self.fault: str | None = "it was not asked yet"
        """Why nothing is received; None where all is well."""
        self._failures = 0

    async def check(self) -> None:
        """Raise where the inbox does not answer. Anybody may ask: they learn of what kind it is, not where."""
        if self.fault is not None:
            raise InboxDown(self.inbox.name.partition(":")[0], self.fault)

    async def tick(self) -> int:
        """Receive once, and see to all that came; return how many messages that were."""
        try:
            messages = await self.inbox.receive(MOST_AT_ONCE, LISTEN_SECONDS)
            taken = await self._see_to(messages) if messages else []
            self._answered()
        except InboxDown as problem:
            await self._silent(problem)
            return 0
        await asyncio.sleep(_pause(taken))
        return len(messages)

    async def _see_to(self, messages: Sequence[Message]) -> list[ReceivedMessage]:
        """Take messages and let go of them. Where that fails the inbox begins anew: what nobody has let go of would
        else stay with this process, count as underway for ever, and leave no place for others."""
        try:
            taken = await self._take(messages)
            await self._let_go(taken)
        except Exception:
            await self.inbox.close()
            raise
        return taken

    async def _take(self, messages: Sequence[Message]) -> list[ReceivedMessage]:
        """What came of them, as soon as the database is there to tell."""
        self._meter.count(metrics.INTAKE_RECEIVED, self.inbox.name, by=len(messages))
        failures = 0
        while True:
            began = time.monotonic()
            try:
                taken = await self._intake.take(self.inbox.name, messages)
            except DatabaseDown as problem:
                if not failures:
                    log.warning("messages wait for the database", extra=self._about(problem))
                failures += 1
                await asyncio.sleep(_retry_delay(failures))
                continue
            self._meter.observe(metrics.INTAKE_SECONDS, time.monotonic() - began, self.inbox.name)
            return taken

    async def _let_go(self, taken: Sequence[ReceivedMessage]) -> None:
        later = [each.message for each in taken if each.outcome is MessageOutcome.LATER]
        settled = [each for each in taken if each.outcome is not MessageOutcome.LATER]
        await self.inbox.bury([(each.message, each.reason) for each in settled if each.outcome is MessageOutcome.DEAD])
        await self._reply([each for each in settled if each.message.reply_to])
        await self.inbox.done([each.message for each in settled])
        await self.inbox.put_back(later)
        for outcome, count in Counter(each.outcome for each in taken).items():
            self._meter.count(OUTCOME_METRICS[outcome], self.inbox.name, by=count)

    async def _reply(self, taken: Sequence[ReceivedMessage]) -> None:
        replies = [reply for each in taken if _has_reply_address(each.message) for reply in self._replies(each)]
        await self.inbox.reply(replies)
        if replies:
            self._meter.count(metrics.INTAKE_REPLIES, self.inbox.name, by=len(replies))

    def _replies(self, taken: ReceivedMessage) -> list[Reply]:
        now, first = self._clock(), first_reply(taken, self._clock())
        if taken.end is None or taken.order is None or taken.run_id is None:
            return [first]
        message, task_id = taken.message, taken.order.task_id
        return [first, end_reply(message.reply_to, message.correlation_id, task_id, taken.run_id, taken.end, now)]

    def _answered(self) -> None:
        if self._failures:
            log.info("inbox answers again", extra={"inbox": self.inbox.name})
        self.fault, self._failures = None, 0

    async def _silent(self, problem: InboxDown) -> None:
        if not self._failures:
            log.warning("inbox does not answer", extra=self._about(problem))
        self.fault = type(problem.__cause__ or problem).__name__
        self._failures += 1
        await asyncio.sleep(_retry_delay(self._failures))

    def _about(self, problem: Exception) -> dict[str, str]:
        return {"inbox": self.inbox.name, "why": str(problem)}


def _retry_delay(failures: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** min(failures, 10), LONGEST_PAUSE) * random.uniform(0.7, 1.3)


def _pause(taken: Sequence[ReceivedMessage]) -> float:
    """How long to wait so that what was put back does not come round and round."""
    later = sum(each.outcome is MessageOutcome.LATER for each in taken)
    return FULL_PAUSE if later and later == len(taken) else later / LATER_PER_SECOND


def _has_reply_address(message: Message) -> bool:
    try:
        check_reply_address(message)
    except Invalid:
        return False
    return True
