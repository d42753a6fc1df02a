"""No doorbell at all: workers look when their time to wait is over."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from weft.adapters.brokers.waiters import Waiters


class PollingBroker:
    """Tells nobody and hears nothing; waiting is sleeping."""

    def __init__(self, url: str = "polling:") -> None:
        self._waiters = Waiters()

    async def ring(self, queues: Mapping[str, int]) -> None:
        """Do nothing: the next look finds the runs."""

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        return await self._waiters.wait(queues, timeout)

    async def close(self) -> None:
        self._waiters.close()
