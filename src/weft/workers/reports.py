"""Tells the control plane how attempts ended, in batches, for as long as it takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import takewhile

from weft.errors import WeftError
from weft.runs.model import Ending
from weft.workers.protocol import WorkerProtocol

log = logging.getLogger(__name__)

MOST_REPORTED = 200
RETRY_SECONDS = 0.5


class Reports:
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
