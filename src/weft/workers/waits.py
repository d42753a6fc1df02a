"""Remote workers that wait for work at this gateway. A ring wakes one of them; underneath, one look serves them all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from weft.db.database import Database, Transaction
from weft.errors import BrokerDown
from weft.loops import every, repeat
from weft.ports import Broker
from weft.runs import claim_store
from weft.runs import store as run_store
from weft.runs.lanes import Lane, queues_for

log = logging.getLogger(__name__)

MOST_LANES = 200

Waiter = asyncio.Future[bool]


class Waits:
    """The calls that wait here. However many there are, the database is looked at once in ``look_seconds``."""

    def __init__(self, db: Database, broker: Broker, look_seconds: float) -> None:
        self._db, self._broker, self._look_seconds = db, broker, look_seconds
        self._waiting: dict[Waiter, frozenset[str]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, labels: Collection[str], seconds: float) -> bool:
        """Return True once there may be work for ``labels``, False after ``seconds`` or when closed."""
        if self._closed:
            return False
        found: Waiter = asyncio.get_running_loop().create_future()
        ringing = asyncio.ensure_future(self._hear(labels, seconds))
        self._enter(found, labels)
        try:
            done, _ = await asyncio.wait({found, ringing}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return any(task.result() for task in done)
        finally:
            self._leave(found)
            ringing.cancel()
            await asyncio.gather(ringing, return_exceptions=True)

    async def tick(self) -> int:
        """Wake one waiter for each lane that has ready runs: no ring may have told of them."""
        woken = 0
        for lane in await self._db.read(_ready):
            able = (each for each, labels in self._waiting.items() if not each.done() and lane.may_be_served_by(labels))
            if (waiter := next(able, None)) is not None:
                waiter.set_result(True)
                woken += 1
        return woken

    def close(self) -> None:
        """Let everyone go; nobody waits here any more."""
        self._closed = True
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_result(False)

    async def _hear(self, labels: Collection[str], seconds: float) -> bool:
        try:
            return await self._broker.wait(queues_for(labels), seconds)
        except BrokerDown as problem:
            log.debug("no rings for remote workers", extra={"why": str(problem)})
            await asyncio.sleep(seconds)
            return False

    def _enter(self, waiter: Waiter, labels: Collection[str]) -> None:
        self._waiting[waiter] = frozenset(labels)
        if self._looking is None:
            self._looking = asyncio.create_task(
                repeat("look for work of remote workers", self.tick, every(self._look_seconds))
            )

    def _leave(self, waiter: Waiter) -> None:
        del self._waiting[waiter]
        if not self._waiting and self._looking is not None:
            self._looking.cancel()
            self._looking = None


def _ready(tx: Transaction) -> list[Lane]:
    ids, _ = claim_store.ready_lanes(tx, 0, MOST_LANES)
    return list(run_store.lanes_by_id(tx, ids).values()) if ids else []
