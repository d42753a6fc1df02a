"""What goes on in the background of a scene."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def meanwhile(*flows: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Let all of them go on until the block ends; one that failed before makes the block fail."""
    tasks = [asyncio.ensure_future(flow()) for flow in flows]
    try:
        yield
        for task in tasks:
            if task.done():
                await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
