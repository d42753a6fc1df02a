"""The receiver of one inbox: takes what comes, and lets go of a message only when what came of it is durable.

The order is commit, tell, acknowledge. Whatever is cut off in between gives the message again, and its task_id makes it
the same run. An inbox that is away is tried again for ever; while the database is away messages stay where they are.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence

from weft import metrics
from weft.clock import Clock
from weft.errors import DatabaseDown, InboxDown, Invalid
from weft.intake.intake import Intake
from weft.intake.model import Outcome, Taken, check_address
from weft.intake.replying import end_reply, first_reply
from weft.metrics import Meter
from weft.ports import Inbox, Message, Reply

log = logging.getLogger(__name__)

MOST_AT_ONCE = 200
LISTEN_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
FULL_PAUSE = 0.5
"""How long nothing is received where everything that came was for later."""
LATER_PER_SECOND = 1000
"""How many messages are put back in a second beside others that are taken."""

COUNTED = {
    Outcome.ACCEPTED: metrics.INTAKE_ACCEPTED,
    Outcome.KNOWN: metrics.INTAKE_KNOWN,
    Outcome.DEAD: metrics.INTAKE_DEAD,
    Outcome.LATER: metrics.INTAKE_LATER,
}


class Receiver:
    def __init__(self, inbox: Inbox, intake: Intake, meter: Meter, clock: Clock) -> None:
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

    async def _see_to(self, messages: Sequence[Message]) -> list[Taken]:
        """Take messages and let go of them. Where that fails the inbox begins anew: what nobody has let go of would
        else stay with this process, count as underway for ever, and leave no place for others."""
        try:
            taken = await self._take(messages)
            await self._let_go(taken)
        except Exception:
            await self.inbox.close()
            raise
        return taken

    async def _take(self, messages: Sequence[Message]) -> list[Taken]:
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
                await asyncio.sleep(_delay(failures))
                continue
            self._meter.observe(metrics.INTAKE_SECONDS, time.monotonic() - began, self.inbox.name)
            return taken

    async def _let_go(self, taken: Sequence[Taken]) -> None:
        later = [each.message for each in taken if each.outcome is Outcome.LATER]
        settled = [each for each in taken if each.outcome is not Outcome.LATER]
        await self.inbox.bury([(each.message, each.reason) for each in settled if each.outcome is Outcome.DEAD])
        await self._reply([each for each in settled if each.message.reply_to])
        await self.inbox.done([each.message for each in settled])
        await self.inbox.put_back(later)
        for outcome, count in Counter(each.outcome for each in taken).items():
            self._meter.count(COUNTED[outcome], self.inbox.name, by=count)

    async def _reply(self, taken: Sequence[Taken]) -> None:
        replies = [reply for each in taken if _can_hear(each.message) for reply in self._replies(each)]
        await self.inbox.reply(replies)
        if replies:
            self._meter.count(metrics.INTAKE_REPLIES, self.inbox.name, by=len(replies))

    def _replies(self, taken: Taken) -> list[Reply]:
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
        await asyncio.sleep(_delay(self._failures))

    def _about(self, problem: Exception) -> dict[str, str]:
        return {"inbox": self.inbox.name, "why": str(problem)}


def _delay(failures: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** min(failures, 10), LONGEST_PAUSE) * random.uniform(0.7, 1.3)


def _pause(taken: Sequence[Taken]) -> float:
    """How long to wait so that what was put back does not come round and round."""
    later = sum(each.outcome is Outcome.LATER for each in taken)
    return FULL_PAUSE if later and later == len(taken) else later / LATER_PER_SECOND


def _can_hear(message: Message) -> bool:
    try:
        check_address(message)
    except Invalid:
        return False
    return True
