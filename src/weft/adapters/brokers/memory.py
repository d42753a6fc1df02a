"""Rings inside one process."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from weft.adapters.brokers.waiters import Waiters


class MemoryBroker:
    """Wakes the waiters of its own process, and no others."""

    def __init__(self, url: str = "memory:") -> None:
        self._waiters = Waiters()

    async def ring(self, queues: Mapping[str, int]) -> None:
        for queue, count in queues.items():
            self._waiters.ring(queue, count)

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        return await self._waiters.wait(queues, timeout)

    async def close(self) -> None:
        self._waiters.close()
