"""What all brokers with a server share: a connection to listen on and one to send on, each with its own transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol

from weft.adapters.brokers.retries import delays, fault_of
from weft.adapters.brokers.wakeups import Waiters
from weft.errors import BrokerDown

log = logging.getLogger(__name__)

STEADY_SECONDS = 5.0


class WakeupListener:
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


PATIENCE_SECONDS = 2.0
MOST_PER_RING = 100
MOST_QUEUES = 1000


class WakeupSender:
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
        self._closed = False

    async def ring(self, queues: Mapping[str, int]) -> None:
        self._keep(queues)
        if self._fault is None:
            async with self._turn:
                if self._pending and self._fault is None and not self._closed:
                    await self._send_pending()
        if self._fault is not None:
            raise BrokerDown(self._broker, self._fault) from self._fault

    async def close(self) -> None:
        """Nothing is sent from now on: a connection that was opened later would never be closed."""
        self._closed = True
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.wait({self._recovering})
        await fault_of(self._goodbye(), timeout=PATIENCE_SECONDS)
        self._hang_up()

    async def _goodbye(self) -> None:
        async with self._turn:
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
            if not self._closed:
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


class WakeupTransport(Protocol):
    """How one kind of server is spoken to: one connection that rings, one that listens."""

    waiters: Waiters
    """Who waits in this process; whoever listens wakes them."""

    async def send(self, queues: Mapping[str, int]) -> None:
        """Ring, on a connection that is kept."""

    def hang_up(self) -> None:
        """Cut that connection at once; what waits on it fails."""

    async def say_goodbye(self) -> None:
        """End it politely."""

    async def listen(self, opened: Callable[[], None]) -> None:
        """Connect, say ``opened`` once rings are heard, and wake waiters until the connection ends."""


class ServerBroker:
    """Rings and listens over a wire; neither a server that is away nor a slow one delays anybody."""

    def __init__(self, name: str, wire: WakeupTransport, *, reaches_all: bool) -> None:
        self.reaches_all = reaches_all
        self._ear = WakeupListener(name, wire.waiters, wire.listen)
        self._ringer = WakeupSender(name, wire.send, wire.hang_up, wire.say_goodbye)

    async def ring(self, queues: Mapping[str, int]) -> None:
        await self._ringer.ring(queues)

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        return await self._ear.wait(queues, timeout)

    async def close(self) -> None:
        await self._ear.close()
        await self._ringer.close()
