"""Waiting in tests: for a condition, with a deadline, never for a length of time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_SECONDS = 20.0
"""How long a condition may take to become true, with much to spare for a busy machine."""

LOOK_SECONDS = 0.01


async def eventually(condition: Callable[[], Any | Awaitable[Any]], timeout: float = PATIENCE_SECONDS) -> Any:
    """Return what ``condition`` gives once that is true; fail, with its source, when it stays false."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"still {found!r} after {timeout} s: {_source(condition)}")
        await asyncio.sleep(LOOK_SECONDS)


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):  # a partial has none
        return repr(condition)
