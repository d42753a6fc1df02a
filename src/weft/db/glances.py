"""Short reads on a server. Those that come while others are made share the next connection and its thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from weft.db.database import Transaction, Unit

T = TypeVar("T")

MOST_AT_ONCE = 2
"""How many threads read, so that others stay free for what takes longer."""
MOST_TOGETHER = 32

Waiting = tuple[Unit[Any], "Future[Any]"]
Look = Callable[[Unit[None]], None]


class Glances:
    """What waits to be read; ``look`` runs a unit of work on a connection, once more where that was lost."""

    def __init__(self, threads: ThreadPoolExecutor, look: Look) -> None:
        self._threads, self._look = threads, look
        self._waiting: deque[Waiting] = deque()
        self._lock, self._reading = threading.Lock(), 0

    def submit(self, work: Unit[T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._waiting.append((work, future))
            begin = self._reading < MOST_AT_ONCE
            self._reading += begin
        if begin:
            self._threads.submit(self._read_all)
        return future

    def _read_all(self) -> None:
        while lot := self._next():
            try:
                self._look(lambda tx, lot=lot: _read(tx, lot))  # type: ignore[misc]
            except Exception as problem:
                for _, future in lot:
                    if not future.done():
                        future.set_exception(problem)

    def _next(self) -> list[Waiting]:
        with self._lock:
            lot = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_TOGETHER))]
            self._reading -= not lot
        return lot


def _read(tx: Transaction, lot: Sequence[Waiting]) -> None:
    """Read for each that has no answer yet; what is wrong with the connection is wrong for all of them."""
    for work, future in lot:
        if future.done() or not (future.running() or future.set_running_or_notify_cancel()):
            continue
        try:
            found = work(tx)
        except DBAPIError:
            raise
        except Exception as problem:
            future.set_exception(problem)
        else:
            future.set_result(found)
