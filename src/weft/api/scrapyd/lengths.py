"""How long a text is that is made while it is read, and how to begin in its midst.

Nobody knows the length of such a text before it was made once. So what was learned is kept, with marks along the way:
the next who asks for its end reads from the last mark on.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Hashable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

MARK_BYTES = 1 << 18
"""How far marks are apart at least."""
MOST_KNOWN = 2_000
MOST_AT_ONCE = 2
"""How many texts are measured at the same time; who asks for more waits."""

Place = Any
"""Where a text can be read from; only the text knows what it means."""


class Text(Protocol):
    """Bytes that are made while they are read."""

    def forwards(self, place: Place = ..., /) -> AsyncGenerator[tuple[bytes, Place | None], None]:
        """From a place on in pieces, each with the place where the next begins; None where none can begin."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A text's length, and places in it."""

    size: int
    offsets: tuple[int, ...]
    places: tuple[Place, ...]

    def before(self, offset: int) -> tuple[int, Place | None]:
        """The last mark at or before ``offset``; None stands for the beginning."""
        number = bisect_right(self.offsets, offset) - 1
        return (self.offsets[number], self.places[number]) if number >= 0 else (0, None)


class Ruler:
    """Notes marks while a text passes by."""

    def __init__(self) -> None:
        self.size = 0
        self._offsets: list[int] = []
        self._places: list[Place] = []

    def passes(self, data: bytes, place: Place | None) -> None:
        self.size += len(data)
        far = not self._offsets or self.size - self._offsets[-1] >= MARK_BYTES
        if place is not None and far and self.size >= MARK_BYTES:
            self._offsets.append(self.size)
            self._places.append(place)

    def read(self) -> Measured:
        return Measured(self.size, tuple(self._offsets), tuple(self._places))


class Lengths:
    """Remembers how long texts are that do not change any more."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Measured] = OrderedDict()
        self._measuring: dict[Hashable, asyncio.Lock] = {}
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    def known(self, key: Hashable | None) -> Measured | None:
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def keep(self, key: Hashable | None, measured: Measured) -> None:
        """Remember the length of ``key``; of None, which stands for a text that may still grow, nothing."""
        if key is not None:
            self._known[key] = measured
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    async def of(self, key: Hashable | None, text: Text) -> Measured:
        """Its length, measured now if need be: by one of those who ask at the same time."""
        lock = self._measuring.setdefault(key, asyncio.Lock()) if key is not None else asyncio.Lock()
        try:
            async with lock:
                found = self.known(key)
                if found is None:
                    found = await self._measured(text)
                    self.keep(key, found)
                return found
        finally:
            if not lock.locked():
                self._measuring.pop(key, None)

    async def _measured(self, text: Text) -> Measured:
        ruler = Ruler()
        async with self._room, aclosing(text.forwards()) as pieces:
            async for data, place in pieces:
                ruler.passes(data, place)
        return ruler.read()


async def between(text: Text, measured: Measured, first: int, end: int) -> AsyncIterator[bytes]:
    """The bytes of a measured text from ``first`` up to ``end``."""
    at, place = measured.before(first)
    async with aclosing(text.forwards() if place is None else text.forwards(place)) as pieces:
        async for data, _ in pieces:
            piece = data[max(0, first - at) : max(0, end - at)]
            at += len(data)
            if piece:
                yield piece
            if at >= end:
                return
