"""Waits for permits of a shared rate limiter and uses each at its time or not at all.

A permit that comes too late, because this process was held up, would make two requests meet, so another is reserved.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from weft.ports import Grant, Limiter

LATE_SECONDS = 0.1
"""How much later than its moment a place may be used."""

LONGEST_WAIT_SECONDS = 60.0
"""Places further away are not taken: what lies so far ahead is asked for again later."""

SOON_SECONDS = 0.01
LOOK_SECONDS = 0.1
"""How often it is looked whether somebody who was under way has arrived."""

Sleep = Callable[[float], Awaitable[None]]


class PermitSource(Protocol):
    """What gives places in line: a limiter, or somebody who asks one."""

    async def reserve(self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0) -> Grant: ...

    def holds(self, grant: Grant) -> bool: ...


class RequestThrottle:
    """Lets the requests of one process through, each at its place in the line of all."""

    def __init__(
        self,
        places: PermitSource,
        *,
        late_seconds: float = LATE_SECONDS,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places, self._late, self._sleep, self._clock = places, late_seconds, sleep, clock
        self.late = self.void = 0
        """Places that were not used: they came too late, or the limiter had forgotten them."""

    async def come(self, keys: Sequence[str], cost: float = 1.0) -> None:
        """Return when it is one's turn under all of ``keys``."""
        while not await self._comes(keys, cost, LONGEST_WAIT_SECONDS):
            pass

    async def _comes(self, keys: Sequence[str], cost: float, longest_wait: float) -> bool:
        """Wait for a place and its moment; False where there is none, or it may not be used when that has come."""
        asked_at = self._clock()
        grant = await self._places.reserve(keys, cost, longest_wait)
        if not grant.granted:
            await self._sleep(min(max(grant.wait_seconds, SOON_SECONDS), longest_wait))
            return False
        if grant.wait_seconds > 0:
            await self._sleep(grant.wait_seconds)
        if not self._places.holds(grant):
            self.void += 1
            return False
        if self._clock() > asked_at + grant.travel_seconds + grant.wait_seconds + self._late:
            self.late += 1
            return False
        return True


class ConcurrencyThrottle(RequestThrottle):
    """The same where only so many may be under way at once."""

    def __init__(self, limiter: Limiter, *, late_seconds: float = LATE_SECONDS) -> None:
        super().__init__(limiter, late_seconds=late_seconds)
        self._limiter = limiter

    @asynccontextmanager
    async def under_way(self, keys: Sequence[str], key: str, deadline_seconds: float) -> AsyncIterator[None]:
        """One's turn under ``keys``, as one of those who may be under way at once under ``key``.

        What is inside must end within the deadline.
        """
        holder = uuid.uuid4().hex
        while not await self._sets_out(keys, key, holder, deadline_seconds):
            pass
        try:
            yield
        finally:
            await self._limiter.release(key, holder)

    async def _sets_out(self, keys: Sequence[str], key: str, holder: str, deadline_seconds: float) -> bool:
        held_at = self._clock()
        held = await self._limiter.hold(key, holder, 2 * deadline_seconds)
        if not held.granted:
            await self._sleep(min(max(held.wait_seconds, SOON_SECONDS), LOOK_SECONDS))
            return False
        came = await self._comes(keys, 1.0, deadline_seconds)
        if came and self._clock() < held_at + deadline_seconds and (held.degraded or self._limiter.holds(held)):
            return True
        await self._limiter.release(key, holder)
        return False
