"""Gets a worker ready for code that was just deployed, in the background: its first run starts as fast as the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from weft.ports import Executor, Prepares
from weft.projects.model import CODED_KINDS, Code
from weft.workers.attempt import Codes
from weft.workers.folder import place_of_runs

log = logging.getLogger(__name__)

MOST_REMEMBERED = 1000


class Preparations:
    """Each version once. What goes wrong here goes wrong again in a run, which says so."""

    def __init__(self, executor: Callable[[str], Executor], code: Codes, folder: Path) -> None:
        self._executor, self._code, self._folder = executor, code, folder
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def under_way(self) -> list[asyncio.Task[None]]:
        return list(self._tasks)

    def begin(self, codes: Iterable[Code]) -> None:
        for code in codes:
            if code.digest in self._known:
                continue
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known.add(code.digest)
            task = asyncio.create_task(self._prepare(code))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def used(self, code: Code | None) -> None:
        """Note that a run of such code was started here."""
        if code is not None:
            self._known.add(code.digest)

    def release(self) -> None:
        """Let go of what was prepared; runs that still go on keep what they have."""
        executors = [self._executor(kind) for kind in CODED_KINDS] if self._known else []
        for executor in executors:
            if isinstance(executor, Prepares):
                executor.release()

    async def _prepare(self, code: Code) -> None:
        try:
            for kind in CODED_KINDS:
                executor = self._executor(kind)
                if isinstance(executor, Prepares):
                    async with self._code(code) as ready:
                        await executor.prepare(ready, place_of_runs(self._folder, code))
        except Exception as problem:  # it is not worth more than a line: the run itself will tell
            log.info("code not prepared", extra={"version": code.version, "why": str(problem)[-500:]})
