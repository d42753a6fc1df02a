"""Reports to the control plane, in batches and with retries: how attempts ended, and what they print meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from itertools import takewhile

from weft.errors import WeftError
from weft.runs.model import Ending
from weft.workers.attempt import RunningAttempt
from weft.workers.protocol import LogChunk, WorkerProtocol

log = logging.getLogger(__name__)

MOST_REPORTED = 200
RETRY_SECONDS = 0.5


class EndingReports:
    """Endings that wait to be told. Nothing is forgotten while the database is away."""

    def __init__(self, protocol: WorkerProtocol, on_told: Callable[[], None]) -> None:
        self.worker_id = 0
        self._on_told = on_told
        self._protocol = protocol
        self._waiting: list[tuple[int, Ending]] = []
        self._telling: list[tuple[int, Ending]] = []
        self._news = asyncio.Event()
        self._told = asyncio.Event()

    @property
    def backlog(self) -> int:
        return len(self._waiting) + len(self._telling)

    @property
    def keys(self) -> set[tuple[int, int]]:
        return {(ending.run_id, ending.attempt) for _, ending in [*self._waiting, *self._telling]}

    def add(self, ending: Ending) -> None:
        self._waiting.append((self.worker_id, ending))
        self._news.set()

    async def run_forever(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._tell()
            self._told.set()

    async def drain(self, hurried: asyncio.Event, patience_seconds: float) -> None:
        """Return when all has been told, when it takes too long, or when somebody is in a hurry.

        What was not told is done again by others: its worker is given up for lost.
        """
        try:
            async with asyncio.timeout(patience_seconds):
                while self.backlog and not hurried.is_set():
                    self._told.clear()
                    waits = [asyncio.ensure_future(self._told.wait()), asyncio.ensure_future(hurried.wait())]
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    for wait in waits:
                        wait.cancel()
        except TimeoutError:
            pass
        if self.backlog:
            log.error("outcomes were not told; those runs will be done again", extra={"runs": self.backlog})

    async def _tell(self) -> None:
        worker_id = self._waiting[0][0]
        batch = list(takewhile(lambda entry: entry[0] == worker_id, self._waiting[:MOST_REPORTED]))
        self._telling, self._waiting = batch, self._waiting[len(batch) :]
        while self._telling:
            try:
                accepted = await self._protocol.finish(worker_id, [ending for _, ending in batch])
            except WeftError as problem:
                log.warning("outcomes not told yet", extra={"runs": len(batch), "why": str(problem)})
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception:  # an outcome must be told, whatever stands in the way
                log.exception("outcomes not told yet", extra={"runs": len(batch)})
                await asyncio.sleep(4 * RETRY_SECONDS)
                continue
            self._telling = []
            self._on_told()
            for (_, ending), ok in zip(batch, accepted, strict=True):
                if not ok:
                    log.warning("outcome refused", extra={"run_id": ending.run_id, "attempt": ending.attempt})


async def ship_logs(protocol: WorkerProtocol, worker_id: int, running: Collection[RunningAttempt]) -> None:
    """Ship what was printed until now, however much that is; what does not come through is for the next time."""
    held = [each for each in running if each.stopped != "lost"]  # else its whole log is brought when it has ended
    left = {each: each.log.written for each in held if each.log.written > each.log.shipped}
    while left and await _ship_pieces(protocol, worker_id, list(left)):
        left = {each: until for each, until in left.items() if each.log.shipped < until}


async def _ship_pieces(protocol: WorkerProtocol, worker_id: int, running: Collection[RunningAttempt]) -> bool:
    """Ship the next piece of each; whether that came through."""
    pieces = [(each, data) for each in running if (data := each.log.unshipped())]
    chunks = [LogChunk(each.lease.run_id, each.lease.attempt, each.log.seq, data) for each, data in pieces]
    try:
        if chunks:
            await protocol.ship(worker_id, chunks)
    except WeftError as problem:
        log.warning("logs not shipped yet", extra={"worker_id": worker_id, "why": str(problem)})
        return False
    except Exception:  # logs go on, whatever one delivery ran into
        log.exception("logs not shipped yet", extra={"worker_id": worker_id})
        return False
    for each, data in pieces:
        each.log.mark_shipped(data)
    return bool(chunks)
