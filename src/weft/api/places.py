"""How many requests are answered at once. Whoever comes when there is no place is told so at once, and to come back.

What reads has places of its own, so that one can look while too much is being changed, and so have streams and
WebSockets, which last. Health checks and workers need no place: the first must answer whatever happens, and of the
others there are only so many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from weft.access.model import Caller
from weft.api.call import Call
from weft.api.operation import Operation
from weft.api.problems import Refused
from weft.api.streams import MEDIA_TYPE, Stream

AGAIN_SECONDS = 1
PEOPLE, GUESTS = frozenset({"user", "key"}), frozenset({"guest"})


class Places:
    """So many at once, half of them for one caller. 0 means that there is a place for everybody."""

    def __init__(self, most: int, what: str = "requests") -> None:
        self._most, self._share, self._what = most, (most + 1) // 2, what
        self._held: Counter[str] = Counter()
        self._taken = 0

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Hold a place for ``caller``; refuse where there is none."""
        if self._most and self._held[caller] >= self._share:
            raise Refused(
                "too_many_requests",
                f"{self._held[caller]} {self._what} of yours are under way; try again in {AGAIN_SECONDS} s",
                retry_after_seconds=AGAIN_SECONDS,
            )
        if self._most and self._taken >= self._most:
            raise Refused(
                "overloaded",
                f"{self._taken} {self._what} are under way; try again in {AGAIN_SECONDS} s",
                retry_after_seconds=AGAIN_SECONDS,
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


def seated(operations: list[Operation], most: int, streams: Places) -> list[Operation]:
    """The same operations, ``most`` that change something and ``most`` that read at once."""
    reads, changes = Places(most), Places(most)
    return [_seated(each, changes if each.changes else reads, streams) for each in operations]


def named(caller: Caller) -> str:
    """Whose place it is."""
    return f"{caller.kind} {caller.id}"


def _seated(operation: Operation, places: Places, streams: Places) -> Operation:
    if operation.needs is None or not operation.callers & (PEOPLE | GUESTS):
        return operation

    async def handle(call: Call) -> Any:
        with places.taken(named(call.caller)):
            return await operation.handle(call)

    async def last(call: Call) -> Any:
        with ExitStack() as held:
            held.enter_context(streams.taken(named(call.caller)))
            answer = await operation.handle(call)
            if isinstance(answer, Stream):
                answer.held = held.pop_all()
            return answer

    return replace(operation, handle=last if operation.media_type == MEDIA_TYPE else handle)
