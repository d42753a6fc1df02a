"""Keeps the log of an attempt that has ended, and does not give up at once."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Protocol, runtime_checkable

from weft.errors import Conflict, Invalid, LeaseLost, NotAllowed, WeftError
from weft.ports import Blobs
from weft.runs.log_shelf import keep_log
from weft.workers.spool import LogSpool
from weft.workers.wire import log_key

log = logging.getLogger(__name__)

KEEP_SECONDS = 60.0
"""How long a store that does not answer is tried again."""
LONGEST_PAUSE_SECONDS = 5.0
FINAL = (LeaseLost, NotAllowed, Invalid, Conflict)
"""What no other try would change."""


@runtime_checkable
class KeepsLogs(Protocol):
    """A blob store that has its own way with logs: a gateway takes them in pieces."""

    async def keep_log(self, run_id: int, attempt: int, spool: LogSpool) -> None: ...


async def kept_log(
    blobs: Blobs, run_id: int, attempt: int, spool: LogSpool, hurried: asyncio.Event
) -> tuple[str | None, str]:
    """Keep the log of an attempt; its key, and why it was not kept. Neither where nothing was printed.

    Tries for a while, and only once where its worker is in a hurry.
    """
    if not spool.written:
        return None, ""
    deadline, pause = time.monotonic() + KEEP_SECONDS, 0.1
    while True:
        try:
            return await _keep(blobs, run_id, attempt, spool), ""
        except (OSError, WeftError) as problem:
            if isinstance(problem, FINAL) or hurried.is_set() or time.monotonic() + pause > deadline:
                log.error("log not kept", extra={"run_id": run_id, "attempt": attempt, "why": str(problem)})
                return None, f"its log was not kept: {problem}"
            log.warning("log not kept yet", extra={"run_id": run_id, "attempt": attempt, "why": str(problem)})
        await asyncio.wait([waiting := asyncio.create_task(hurried.wait())], timeout=pause * random.uniform(0.5, 1.0))
        waiting.cancel()
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def _keep(blobs: Blobs, run_id: int, attempt: int, spool: LogSpool) -> str:
    key = log_key(run_id, attempt)
    if isinstance(blobs, KeepsLogs):
        await blobs.keep_log(run_id, attempt, spool)
    else:
        await keep_log(blobs, key, spool.size, spool.read)
    return key
