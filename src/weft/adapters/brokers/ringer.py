"""The sending side of a broker with a server: quick while it is there, and out of the way while it is not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from weft.adapters.brokers.attempts import delays, fault_of
from weft.errors import BrokerDown

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
MOST_PER_RING = 100
MOST_QUEUES = 1000


class Ringer:
    """Sends hints, those of callers that come meanwhile in one go.

    When the server is away the first ring says so within two seconds and all others at once, so that no submit is
    slowed down. What they had to say is kept, capped, and sent when the server is back; that is also how it is probed.
    """

    def __init__(
        self,
        broker: str,
        send: Callable[[Mapping[str, int]], Coroutine[Any, Any, None]],
        hang_up: Callable[[], None],
        say_goodbye: Callable[[], Awaitable[None]],
    ) -> None:
        self._broker, self._send, self._hang_up, self._say_goodbye = broker, send, hang_up, say_goodbye
        self._pending: dict[str, int] = {}
        self._turn = asyncio.Lock()
        self._fault: BaseException | None = None
        self._recovering: asyncio.Task[None] | None = None

    async def ring(self, queues: Mapping[str, int]) -> None:
        self._keep(queues)
        if self._fault is None:
            async with self._turn:
                if self._pending and self._fault is None:
                    await self._send_pending()
        if self._fault is not None:
            raise BrokerDown(self._broker, self._fault) from self._fault

    async def close(self) -> None:
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.wait({self._recovering})
        await fault_of(self._goodbye(), timeout=PATIENCE_SECONDS)
        self._hang_up()

    async def _goodbye(self) -> None:
        await self._say_goodbye()

    def _keep(self, queues: Mapping[str, int]) -> None:
        for queue, count in queues.items():
            self._pending[queue] = min(MOST_PER_RING, self._pending.get(queue, 0) + max(1, count))
        while len(self._pending) > MOST_QUEUES:
            del self._pending[next(iter(self._pending))]

    async def _send_pending(self) -> None:
        hints, self._pending = self._pending, {}
        self._fault = await self._try_twice(hints)
        if self._fault is not None:
            log.debug("broker does not answer", extra={"broker": self._broker, "why": repr(self._fault)})
            self._keep(hints)
            self._recovering = asyncio.create_task(self._recover())

    async def _try_twice(self, hints: Mapping[str, int]) -> BaseException | None:
        """A connection that was kept may have died long ago; only a fresh one tells whether the server is there."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        fault = await self._attempt(hints, PATIENCE_SECONDS)
        remaining = deadline - asyncio.get_running_loop().time()
        return await self._attempt(hints, remaining) if fault and remaining > 0.1 else fault

    async def _attempt(self, hints: Mapping[str, int], timeout: float) -> BaseException | None:
        fault = await fault_of(self._send(hints), timeout=timeout, hang_up=self._hang_up)
        if fault is not None:
            self._hang_up()
        return fault

    async def _recover(self) -> None:
        for delay in delays():
            await asyncio.sleep(delay)
            hints, self._pending = self._pending, {}
            fault = await self._attempt(hints, PATIENCE_SECONDS)
            if fault is None:
                self._fault = None
                log.debug("broker answers again", extra={"broker": self._broker})
                return
            self._fault = fault
            self._keep(hints)
