"""Waiting in a benchmark: for something that can be asked, and never for ever."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.peers.peer import PeerFailed

PATIENCE_SECONDS = 60.0


async def until(
    what: str, come: Callable[[], Awaitable[bool]], *, step: float = 0.05, patience: float = PATIENCE_SECONDS
) -> None:
    """Return once it has come; a benchmark that waits in vain fails."""
    deadline = time.monotonic() + patience
    while not await come():
        if time.monotonic() > deadline:
            raise PeerFailed("weft", f"did not get to this within {patience:.0f} s: {what}", "")
        await asyncio.sleep(step)
