"""The items of a run on disk: numbered segments of JSON lines, one write a line, so that a kill loses none."""

from __future__ import annotations

import os
import time
from pathlib import Path

SEGMENT_BYTES = 4 * 1024 * 1024


class Spool:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1
        self._room = 0
        self.count = 0

    def add(self, item: bytes) -> None:
        """Keep one item that is JSON already."""
        line = b'{"at":%d,"item":%b}\n' % (time.time_ns() // 1000, item)
        if self._room <= 0:
            self._begin_segment()
        write_all(self._file, line)
        self.count += 1
        self._room -= len(line)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._room = -1, 0

    def _begin_segment(self) -> None:
        self.close()
        path = self._folder / f"{self.count + 1:012d}.jl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._room = SEGMENT_BYTES


def write_all(file: int, data: bytes) -> None:
    """Write it all, also where a signal or a full disk cuts a write short (the next one then says why)."""
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, data[written:])
