"""When each run started and ended, noted by the executor of the process that ran it.

An executor that stamps stands before the one that does the work. The stamps of all processes meet in a directory, so
that measuring touches neither broker nor database. The moments come from the monotonic clock, which all processes of
one machine share.
"""

import os
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

from weft.ports import Breaker, Ended, Executor, Work

CAPACITY = 1 << 20
"""How many runs one process can stamp; the file is sparse, so that unused places cost nothing."""


class Start(NamedTuple):
    """One execution; ``ended`` is 0 while it goes on."""

    run_id: int
    started: int
    ended: int


FIELDS = len(Start._fields)


class Stamping:
    """Does what another executor does, and notes when."""

    def __init__(self, executor: Executor, directory: Path) -> None:
        self._executor = executor
        self.needs_folder = executor.needs_folder
        with (directory / str(os.getpid())).open("w+b") as file:
            file.truncate(CAPACITY * FIELDS * 8)
            self._slots = memoryview(mmap(file.fileno(), 0)).cast("q")
        self._places = count(0, FIELDS)

    def check(self, spec: Mapping[str, Any]) -> None:
        self._executor.check(spec)

    async def execute(self, work: Work) -> Ended:
        started = time.monotonic_ns()
        place = next(self._places)
        self._slots[place + 1] = started
        self._slots[place] = work.run_id  # last, since the place counts as filled from here on
        try:
            return await self._executor.execute(work)
        finally:
            self._slots[place + 2] = time.monotonic_ns()

    def breakers(self) -> Collection[Breaker]:
        return self._executor.breakers()


class Starts:
    """All stamps that processes have left in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def total(self) -> int:
        return sum(len(part) // FIELDS for part in self._parts())

    def __iter__(self) -> Iterator[Start]:
        for part in self._parts():
            for place in range(0, len(part), FIELDS):
                yield Start(*part[place : place + FIELDS])

    def counts(self) -> list[int]:
        """How many runs each process has started."""
        return sorted(len(part) // FIELDS for part in self._parts())

    def rate(self) -> float:
        """Starts a second from the first tenth of them to the last."""
        moments = sorted(start.started for start in self)
        first, last = len(moments) // 10, len(moments) * 9 // 10
        return (last - first) / (moments[last] - moments[first]) * 1e9

    def at_once(self) -> int:
        """How many runs went on at the same time, at the most."""
        changes = sorted(
            (moment, step) for run in self for moment, step in ((run.started, 1), (run.ended, -1)) if moment
        )
        running = most = 0
        for _, step in changes:
            running += step
            most = max(most, running)
        return most

    def _parts(self) -> list[memoryview]:
        return [written(path) for path in self.directory.iterdir()]


def written(path: Path) -> memoryview:
    """The slots that are filled: all before the first place without a run."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"").cast("q")
        slots = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ)).cast("q")
    filled = bisect_left(range(CAPACITY), True, key=lambda place: slots[place * FIELDS] == 0)
    return slots[: filled * FIELDS]
