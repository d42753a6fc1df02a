"""Finds the processes of a run by a mark that they cannot lose, wherever they have moved to.

A run's first process sets its limit of real-time CPU time, which nothing else here uses, to a number of the run's own
(``agent/rlimits.py``). The kernel hands it on through fork, exec, a new session and an emptied environment, shows it
to everybody, and the walls refuse to change it.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from weft.adapters.executors._group import PROC

FIRST = 2**61
"""Marks are from here on: more than any real limit, and less than none."""

UNDECIDED_SECONDS = 10.0
"""A process may be marked this long after it was first seen: a spider is, once its Python has started."""

LINE = b"Max realtime timeout"


def mark_of(folder: Path) -> int:
    """The mark of the run whose folder this is; another on the same machine has another folder."""
    digest = hashlib.blake2b(os.fsencode(folder.absolute()), digest_size=7).digest()
    return FIRST + int.from_bytes(digest, "big")


@dataclass(slots=True)
class Known:
    """A process that was seen: by its id, and the number of its entry in /proc, which no later one has."""

    entry: int
    first_seen: float
    mark: int = 0


class Census:
    """Which process carries which mark, for all runs of a worker: what was read once is not read again."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._guard = threading.Lock()

    def carriers(self, mark: int) -> list[int]:
        """The processes that carry this mark now."""
        with self._guard:
            self._look()
            return [pid for pid, known in self._known.items() if known.mark == mark]

    def _look(self) -> None:
        now = time.monotonic()
        seen: dict[int, Known] = {}
        for pid, entry in _entries():
            known = self._known.get(pid)
            if known is None or known.entry != entry:
                known = Known(entry, now)
            if not known.mark and now - known.first_seen < UNDECIDED_SECONDS:
                known.mark = _mark(pid)
            seen[pid] = known
        self._known = seen


def _entries() -> list[tuple[int, int]]:
    try:
        with os.scandir(PROC) as found:
            return [(int(each.name), each.inode()) for each in found if each.name.isdigit()]
    except OSError:
        return []


def _mark(pid: int) -> int:
    """The mark of a process, 0 where it has none or is gone."""
    try:
        with open(f"{PROC}/{pid}/limits", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return 0
    _, _, after = text.partition(LINE)
    soft = after.split(None, 1)[0] if after.strip() else b""
    return int(soft) if soft.isdigit() and int(soft) >= FIRST else 0


CENSUS = Census()
"""One for the whole process: a look for one run serves the next."""
