"""The listening side of a broker with a server: one connection for all who wait in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from weft.adapters.brokers.attempts import delays, fault_of
from weft.adapters.brokers.waiters import Waiters
from weft.errors import BrokerDown

log = logging.getLogger(__name__)

STEADY_SECONDS = 5.0


class Ear:
    """Listens from the first wait to the close, and again and again where the server goes away.

    ``listen`` connects, calls what it is given once it can hear, and then rings the waiters until its connection ends.
    """

    def __init__(
        self, broker: str, waiters: Waiters, listen: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]
    ) -> None:
        self._broker, self._waiters, self._listen = broker, waiters, listen
        self._fault: BaseException | None = None
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        if self._listening is None and not self._closed:
            self._listening = asyncio.create_task(self._keep_listening())
        heard = await self._waiters.wait(queues, timeout)
        if not heard and self._fault is not None and not self._closed:
            raise BrokerDown(self._broker, self._fault) from self._fault
        return heard

    def opened(self) -> None:
        """From now on rings are heard; earlier ones may have been missed, so everyone looks once."""
        if self._fault is not None:
            log.info("broker is heard again", extra={"broker": self._broker})
        self._fault = None
        self._waiters.wake_all()

    async def close(self) -> None:
        self._closed = True
        self._waiters.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})

    async def _keep_listening(self) -> None:
        loop = asyncio.get_running_loop()
        pauses = delays()
        while True:
            started = loop.time()
            fault = await fault_of(self._listen(self.opened)) or ConnectionError("the connection ended")
            if self._fault is None:
                log.warning("broker is not heard", extra={"broker": self._broker, "why": repr(fault)})
            self._fault = fault
            if loop.time() - started > STEADY_SECONDS:
                pauses = delays()
            await asyncio.sleep(next(pauses))
