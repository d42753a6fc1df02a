"""A pause that a word ends."""

from __future__ import annotations

import asyncio


async def pause(seconds: float, until: asyncio.Event) -> None:
    """So many seconds, or until the word comes. ``wait_for`` would lose a cancellation that comes with the word."""
    try:
        async with asyncio.timeout(seconds):
            await until.wait()
    except TimeoutError:
        return
