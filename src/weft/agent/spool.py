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
        self._size = SEGMENT_BYTES
        self.count = 0

    def add(self, item: bytes) -> None:
        """Keep one item that is JSON already; what cannot be written whole is not written."""
        line = b'{"at":%d,"item":%b}\n' % (time.time_ns() // 1000, item)
        if self._size >= SEGMENT_BYTES:
            self._begin_segment()
        try:
            write_all(self._file, line)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self.count += 1
        self._size += len(line)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = -1, SEGMENT_BYTES

    def _begin_segment(self) -> None:
        self.close()
        path = self._folder / f"{self.count + 1:012d}.jl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._size = 0


def write_all(file: int, data: bytes) -> None:
    """Write it all, also where a signal or a full disk cuts a write short (the next one then says why)."""
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, data[written:])
