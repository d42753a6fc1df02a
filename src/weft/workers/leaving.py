"""How long a worker that leaves waits for what it still runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any


async def wait_for_runs(
    tasks: Sequence[asyncio.Task[Any]], seconds: float, *, patient_until: asyncio.Event | None = None
) -> None:
    """Return when all have ended or the time is over, which begins only with ``patient_until`` where that is given."""
    if patient_until is not None:
        ended, asked = asyncio.ensure_future(asyncio.wait(tasks)), asyncio.ensure_future(patient_until.wait())
        await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        asked.cancel()
    await asyncio.wait(tasks, timeout=seconds)
