"""When each task was done, noted by the process that did it, at a cost of a fraction of a microsecond.

A worker calls ``mark()`` once a task; the bench reads the marks of all worker processes with ``Marks``. They meet in a
directory named by the environment, so that counting touches neither broker nor database. The moments come from the
monotonic clock, which all processes of one machine share.
"""

import os
import threading
import time
from bisect import bisect_left
from itertools import count
from mmap import ACCESS_READ, mmap
from pathlib import Path

DIRECTORY = "BENCH_MARKS"
CAPACITY = 1 << 21
"""How many marks one process can make; the file is sparse, so that unused ones cost nothing."""


class Marker:
    """The marks of this process, one slot each, in order. Threads share it, forks do not."""

    def __init__(self, directory: Path) -> None:
        with (directory / str(os.getpid())).open("w+b") as file:
            file.truncate(CAPACITY * 8)
            self._slots = memoryview(mmap(file.fileno(), 0)).cast("q")
        self._next = count()

    def mark(self) -> None:
        self._slots[next(self._next)] = time.monotonic_ns()


_marker: Marker | None = None
_making = threading.Lock()


def mark() -> None:
    """Note that a task is done, now."""
    (_marker or _make()).mark()


def _make() -> Marker:
    """Threads may come here at once; only one file bears the id of this process."""
    global _marker
    with _making:
        _marker = _marker or Marker(Path(os.environ[DIRECTORY]))
        return _marker


def _forget() -> None:
    global _marker, _making
    _marker, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


class Marks:
    """All marks that worker processes have made in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def total(self) -> int:
        return sum(map(len, self._all()))

    def rate(self) -> float:
        """Tasks a second from the first tenth of the completions to the last: neither start nor end is in it."""
        moments = sorted(moment for part in self._all() for moment in part)
        first, last = len(moments) // 10, len(moments) * 9 // 10
        return (last - first) / (moments[last] - moments[first]) * 1e9

    def processes(self) -> int:
        """How many processes have done at least one task."""
        return sum(1 for part in self._all() if len(part))

    def _all(self) -> list[memoryview]:
        return [written(path) for path in self._directory.iterdir()]


def written(path: Path) -> memoryview:
    """The slots that are filled: all before the first zero."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"").cast("q")
        slots = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ)).cast("q")
    return slots[: bisect_left(slots, True, key=lambda moment: moment == 0)]
