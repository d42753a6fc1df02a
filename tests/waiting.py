"""Waiting in tests: for a condition, with a deadline, never for a length of time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_SECONDS = 60.0
"""How long a condition may take to become true, with much to spare for a busy machine."""

LOOK_SECONDS = 0.01
LONGEST_LOOK_SECONDS = 0.05
"""The longest pause between two checks: many conditions ask a database, a server or a browser."""


async def eventually(condition: Callable[[], Any | Awaitable[Any]], timeout: float = PATIENCE_SECONDS) -> Any:
    """Return what ``condition`` gives once that is true; fail, with its source, when it stays false."""
    began = time.monotonic()
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"still {found!r} after {timeout} s: {_source(condition)}")
        await asyncio.sleep(min(max(LOOK_SECONDS, waited / 10), LONGEST_LOOK_SECONDS))


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):  # a partial has none
        return repr(condition)
