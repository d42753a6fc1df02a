"""The one loop of weft: a duty is a ``tick()``, called again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from weft.errors import WeftError

log = logging.getLogger(__name__)


async def repeat(duty: str, tick: Callable[[], Awaitable[object]], pause: Callable[[], Awaitable[float]]) -> None:
    """Call ``tick`` for ever, waiting ``pause()`` seconds between two; what goes wrong is logged and tried again."""
    failures = 0
    while True:
        try:
            await tick()
            seconds = await pause()
            failures = 0
        except WeftError as problem:
            log.warning("duty put off", extra={"duty": duty, "why": str(problem)})
            failures += 1
            seconds = min(0.5 * failures, 3.0)
        except Exception:
            log.exception("duty failed", extra={"duty": duty})
            failures += 1
            seconds = min(2.0 ** min(failures, 5) / 2, 10.0)
        await asyncio.sleep(seconds)


def every(seconds: float) -> Callable[[], Awaitable[float]]:
    """A pause that is always the same."""

    async def pause() -> float:
        return seconds

    return pause
