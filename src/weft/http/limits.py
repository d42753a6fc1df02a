"""Rate limits and concurrency limits of callers."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from weft.access.model import Caller
from weft.operations.operation import Call, Operation
from weft.operations.problems import RequestRefused
from weft.operations.streams import MEDIA_TYPE, EventStreamResponse

MOST_CALLERS = 10_000
BURST_SECONDS = 2.0
"""How many seconds' worth of requests may come at once."""


class RateLimit:
    """A bucket for each caller that fills with time; each request takes one drop. 0 a second means no limit."""

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._now = per_second, now
        self._buckets: dict[str, tuple[float, float]] = {}

    def check(self, caller: str) -> None:
        """Count one request of ``caller``; refuse it where there were too many."""
        if not self._per_second:
            return
        most, now = self._per_second * BURST_SECONDS, self._now()
        level, at = self._buckets.get(caller, (most, now))
        level = min(most, level + (now - at) * self._per_second)
        if level < 1:
            seconds = max(1, math.ceil((1 - level) / self._per_second))
            raise RequestRefused(
                "too_many_requests",
                f"more than {self._per_second:g} requests a second came from you; try again in {seconds} s",
                retry_after_seconds=seconds,
            )
        if caller not in self._buckets and len(self._buckets) >= MOST_CALLERS:
            self._forget_full(most, now)
        self._buckets[caller] = (level - 1, now)

    def _forget_full(self, most: float, now: float) -> None:
        """Drop those who have asked nothing for so long that they start anew anyway; else the one who came first."""
        idle = [name for name, (level, at) in self._buckets.items() if level + (now - at) * self._per_second >= most]
        for name in idle or [next(iter(self._buckets))]:
            del self._buckets[name]


RETRY_SECONDS = 1
PEOPLE, GUESTS = frozenset({"user", "key"}), frozenset({"guest"})


class ConcurrencyLimit:
    """So many at once, half of them for one caller. 0 means that there is a place for everybody."""

    def __init__(self, most: int, what: str = "requests") -> None:
        self._most, self._share, self._what = most, (most + 1) // 2, what
        self._held: Counter[str] = Counter()
        self._taken = 0

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Hold a place for ``caller``; refuse where there is none."""
        if self._most and self._held[caller] >= self._share:
            raise RequestRefused(
                "too_many_requests",
                f"{self._held[caller]} {self._what} of yours are under way; try again in {RETRY_SECONDS} s",
                retry_after_seconds=RETRY_SECONDS,
            )
        if self._most and self._taken >= self._most:
            raise RequestRefused(
                "overloaded",
                f"{self._taken} {self._what} are under way; try again in {RETRY_SECONDS} s",
                retry_after_seconds=RETRY_SECONDS,
            )
        self._taken += 1
        self._held[caller] += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]


def limited(operations: list[Operation[Any]], most: int, streams: ConcurrencyLimit) -> list[Operation[Any]]:
    """The same operations, ``most`` that change something and ``most`` that read at once."""
    reads, changes = ConcurrencyLimit(most), ConcurrencyLimit(most)
    return [_limited(each, changes if each.changes else reads, streams) for each in operations]


def limit_key(caller: Caller) -> str:
    """Whose place it is."""
    return f"{caller.kind} {caller.id}"


def _limited(operation: Operation[Any], places: ConcurrencyLimit, streams: ConcurrencyLimit) -> Operation[Any]:
    if operation.needs is None or not operation.callers & (PEOPLE | GUESTS):
        return operation

    async def handle(call: Call) -> Any:
        with places.taken(limit_key(call.caller)):
            return await operation.handle(call)

    async def last(call: Call) -> Any:
        with ExitStack() as held:
            held.enter_context(streams.taken(limit_key(call.caller)))
            answer = await operation.handle(call)
            if isinstance(answer, EventStreamResponse):
                answer.held = held.pop_all()
            return answer

    return replace(operation, handle=last if operation.media_type == MEDIA_TYPE else handle)
