"""Wakes workers through the broker when runs become ready, without anybody waiting for it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping

from weft.errors import BrokerDown
from weft.ports import Broker

log = logging.getLogger(__name__)


class Wakeups:
    """Collects what became ready while the last ring is under way; a broker that is down or slow delays nobody."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._pending: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ringing: asyncio.Task[None] | None = None
        self._was_down = False

    @property
    def reaches_all(self) -> bool:
        return self._broker.reaches_all

    def attach(self) -> None:
        """Ring from the running event loop from now on."""
        self._loop = asyncio.get_running_loop()

    def add(self, queue: str, count: int = 1) -> None:
        """Ring soon. May be called from any thread."""
        self.add_all({queue: count})

    def add_all(self, queues: Mapping[str, int]) -> None:
        with self._lock:
            fresh = not self._pending
            self._pending.update(queues)
        if fresh and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._start)

    async def wait(self, queues: Collection[str], seconds: float) -> None:
        """Return when one of ``queues`` was rung, and no later than after ``seconds``."""
        try:
            await self._broker.wait(queues, seconds)
        except BrokerDown:
            await asyncio.sleep(seconds)

    async def flush(self) -> None:
        """Return when everything added so far has been rung, or could not be."""
        self._start()
        if self._ringing is not None:
            await self._ringing

    def _start(self) -> None:
        if self._ringing is None or self._ringing.done():
            self._ringing = asyncio.get_running_loop().create_task(self._ring())

    async def _ring(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    return
                queues, self._pending = self._pending, Counter()
            try:
                await self._broker.ring(queues)
                self._was_down = False
            except BrokerDown as problem:
                if not self._was_down:
                    log.warning("the broker was not reached; workers poll", extra={"why": str(problem)})
                self._was_down = True
            except Exception:  # a fault of one ring must not keep the next from being rung
                log.exception("the broker was not rung", extra={"queues": dict(queues)})
