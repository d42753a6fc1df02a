"""Submits no-op runs at a given pace, and knows when each of them was committed."""

import asyncio
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from weft.app import App
from weft.db.batching import Batched
from weft.db.database import Transaction
from weft.runs.model import NewRun, RunSpec, Submitted


class Submitter:
    """Hands runs over as ``runs.submit`` does, and notes the moment at which the commit returned."""

    def __init__(self, app: App, spec: dict[str, Any] | None = None) -> None:
        self._app = app
        self._run = NewRun(project="bench", task="noop", kind="noop", spec=RunSpec(spec=spec or {}))
        self._submit_together = Batched(app.db, self._admit_all, len)
        self.committed: dict[int, int] = {}
        """When each run was committed, in nanoseconds of the monotonic clock."""

    async def submit(self, count: int = 1) -> None:
        await self._submit_together([self._run] * count)

    async def fill(self, runs: int, at_once: int = 1000) -> None:
        """Make a backlog."""
        for start in range(0, runs, at_once):
            await self.submit(min(at_once, runs - start))

    async def pace(self, gaps: Iterator[float], seconds: float, at_once: int = 1) -> None:
        """Submit after each gap for so long, however long the submits before it take."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        end = due + seconds
        async with asyncio.TaskGroup() as group:
            while (due := due + next(gaps)) < end:
                await asyncio.sleep(max(0.0, due - loop.time()))
                group.create_task(self.submit(at_once))

    def _admit_all(self, tx: Transaction, submits: Sequence[Sequence[NewRun]]) -> list[list[Submitted]]:
        ids: list[int] = []
        tx.after_commit(lambda: self._note(ids))  # first of all, so that no other effect delays the stamp
        answers = self._app.runs.admit_all(tx, submits)
        ids += [submitted.run_id for answer in answers for submitted in answer]
        return answers

    def _note(self, ids: Iterable[int]) -> None:
        self.committed.update(dict.fromkeys(ids, time.monotonic_ns()))


def now_and_then(low: float = 0.02, high: float = 0.08) -> Iterator[float]:
    """The gaps of an idle system: a submit every now and then."""
    while True:
        yield random.uniform(low, high)


def poisson(rate: float) -> Iterator[float]:
    """The gaps between events that come independently, ``rate`` of them a second."""
    while True:
        yield random.expovariate(rate)
