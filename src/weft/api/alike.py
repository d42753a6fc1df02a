"""Answers to the same question. Who asks it while one is being found shares the next one.

A page that many look at is read from the database as often as one after the other can be, not as often as it is asked
for. Nobody is given an answer whose finding began before they asked: what was acknowledged before is always in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable

Find = Callable[[], Awaitable[bytes]]


class Alike:
    """The questions that are being answered, each with those who wait for its next answer."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[asyncio.Future[bytes]]] = {}
        self._finding: dict[Hashable, asyncio.Task[None]] = {}

    async def __call__(self, asked: Hashable, find: Find) -> bytes:
        """What ``find`` finds; ``asked`` must hold everything that its answer depends on, also who may see what."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asked, []).append(answer)
        if asked not in self._finding:
            self._finding[asked] = asyncio.create_task(self._find_all(asked, find))
        return await answer

    async def _find_all(self, asked: Hashable, find: Find) -> None:
        try:
            while waiting := self._waiting.pop(asked, None):
                await _tell(waiting, find)
        finally:
            del self._finding[asked]


async def _tell(waiting: list[asyncio.Future[bytes]], find: Find) -> None:
    try:
        found = await find()
    except Exception as problem:
        for answer in waiting:
            if not answer.done():
                answer.set_exception(problem)
        return
    for answer in waiting:
        if not answer.done():
            answer.set_result(found)
