"""How a broker tries, fails and tries again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

FIRST_DELAY = 0.05
LONGEST_DELAY = 2.0
LAST_WORDS_SECONDS = 0.05
FAREWELL_SECONDS = 1.0


def delays() -> Iterator[float]:
    """Seconds between attempts: doubling up to a limit, and never quite the same in two processes."""
    delay = FIRST_DELAY
    while True:
        yield delay * random.uniform(0.7, 1.3)
        delay = min(LONGEST_DELAY, delay * 2)


async def fault_of(
    work: Coroutine[Any, Any, None], *, timeout: float | None = None, hang_up: Callable[[], None] = lambda: None
) -> BaseException | None:
    """Do ``work`` and return what went wrong, or None. After ``timeout`` seconds it is hung up on and left behind.

    It is a task of its own for two reasons: a library that cancels its callers when a connection closes must not look
    like a request to stop, and one that takes its time to be cancelled must not hold up those who ring.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=FAREWELL_SECONDS)
        raise
    if not done:
        hang_up()
        await asyncio.wait({task}, timeout=LAST_WORDS_SECONDS)
        task.cancel()
        return TimeoutError(f"no answer within {timeout:g} s")
    if task.cancelled():
        return ConnectionError("the connection was closed")
    return task.exception()


def _retrieve(task: asyncio.Future[None]) -> None:
    """Look at the error of a task that nobody awaits any more, so that it is not reported as forgotten."""
    if not task.cancelled():
        task.exception()
