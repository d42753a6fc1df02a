"""Brokers without a server: wake-ups inside one process, and none at all (workers poll)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from weft.adapters.brokers.wakeups import Waiters


class MemoryBroker:
    """Wakes the waiters of its own process, and no others."""

    reaches_all = True

    def __init__(self, url: str = "memory:") -> None:
        self._waiters = Waiters()

    async def ring(self, queues: Mapping[str, int]) -> None:
        for queue, count in queues.items():
            self._waiters.ring(queue, count)

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        return await self._waiters.wait(queues, timeout)

    async def close(self) -> None:
        self._waiters.close()


class PollingBroker:
    """Tells nobody and hears nothing; waiting is sleeping."""

    reaches_all = True

    def __init__(self, url: str = "polling:") -> None:
        self._waiters = Waiters()

    async def ring(self, queues: Mapping[str, int]) -> None:
        """Do nothing: the next look finds the runs."""

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        return await self._waiters.wait(queues, timeout)

    async def close(self) -> None:
        self._waiters.close()
