"""Calls that wait are made in one transaction: what a database charges for each transaction is paid once for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from itertools import accumulate
from typing import Generic, TypeVar

from weft.db.database import Database, Transaction
from weft.errors import DatabaseDown

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

MOST_TOGETHER = 500
"""How much one transaction may take on, in whatever ``size`` measures, so that nobody waits for long."""

LARGE = MOST_TOGETHER // 10
"""What is not to be had in larger lots by waiting."""


class Batched(Generic[Asked, Answer]):
    """Calls of one kind, in one event loop. One that comes alone is made at once; those that come while it is under
    way are made together after it.

    ``work`` answers all of them or fails; where it fails, each is made alone, so that nobody pays for another's fault,
    and side by side, so that nobody waits for the others either.
    Small transactions begin at least ``apart_seconds`` after one another, so that what nobody waits for comes in lots.
    """

    def __init__(
        self,
        db: Database,
        work: Callable[[Transaction, Sequence[Asked]], Sequence[Answer]],
        size: Callable[[Asked], int] = lambda asked: 1,
        *,
        apart_seconds: float = 0.0,
        urgent: bool = False,
    ) -> None:
        self._db, self._work, self._size, self._apart, self._urgent = db, work, size, apart_seconds, urgent
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._making: asyncio.Task[None] | None = None

    async def __call__(self, asked: Asked) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        if self._making is None:
            # In a context of its own: what is made for many is made in nobody's name.
            self._making = asyncio.create_task(self._make_all(), context=Context())
        return await answer

    async def _make_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                begun, batch = loop.time(), self._next()
                await self._make(batch)
                small = sum(self._size(asked) for asked, _ in batch) < LARGE
                if small and (rest := begun + self._apart - loop.time()) > 0:
                    await asyncio.sleep(rest)
        finally:
            self._making = None

    def _next(self) -> list[tuple[Asked, asyncio.Future[Answer]]]:
        """The first that wait, as many as fit."""
        sizes = accumulate(self._size(asked) for asked, _ in self._waiting)
        fitting = max(1, sum(size <= MOST_TOGETHER for size in sizes))
        batch, self._waiting = self._waiting[:fitting], self._waiting[fitting:]
        return [(asked, answer) for asked, answer in batch if not answer.done()]

    async def _make(self, batch: Sequence[tuple[Asked, asyncio.Future[Answer]]]) -> None:
        if not batch:
            return
        try:
            answers = await self._db.transact(
                lambda tx: self._work(tx, [asked for asked, _ in batch]), urgent=self._urgent
            )
        except Exception as problem:
            if len(batch) > 1 and not isinstance(problem, DatabaseDown):
                await asyncio.gather(*(self._make([each]) for each in batch))
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(problem)
            return
        for (_, answer), given in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(given)
