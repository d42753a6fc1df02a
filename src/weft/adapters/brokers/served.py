"""A broker that has a server: what such brokers do alike, on top of how each speaks to its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from weft.adapters.brokers.ear import Ear
from weft.adapters.brokers.ringer import Ringer
from weft.adapters.brokers.waiters import Waiters


class Wire(Protocol):
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


class ServedBroker:
    """Rings and listens over a wire; neither a server that is away nor a slow one delays anybody."""

    def __init__(self, name: str, wire: Wire) -> None:
        self._ear = Ear(name, wire.waiters, wire.listen)
        self._ringer = Ringer(name, wire.send, wire.hang_up, wire.say_goodbye)

    async def ring(self, queues: Mapping[str, int]) -> None:
        await self._ringer.ring(queues)

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        return await self._ear.wait(queues, timeout)

    async def close(self) -> None:
        await self._ear.close()
        await self._ringer.close()
