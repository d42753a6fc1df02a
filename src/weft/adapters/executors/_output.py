"""What a process prints, read while it is printed."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable

CHUNK = 65_536
DRAIN_LIMIT = 1_048_576
"""More than a pipe holds: what comes beyond was printed by a process that has left the group."""
PIPE_BYTES = 1_048_576
"""How much may be printed while the reader is busy; a system that allows less gives less."""


class Output:
    """A pipe whose one end is the process's standard output, and whose other end is read into ``sink``."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._loop, self._sink = asyncio.get_running_loop(), sink
        self._end, self.inlet = os.pipe()
        try:
            fcntl.fcntl(self._end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except (AttributeError, OSError):
            pass
        os.set_blocking(self._end, False)
        self._loop.add_reader(self._end, self._read)

    def hand_over(self) -> None:
        """The process has its end: ours of that is closed, so that the end of the process is the end of the output."""
        if self.inlet >= 0:
            os.close(self.inlet)
            self.inlet = -1

    def close(self) -> None:
        """Read what is left, within reason, and close."""
        self.hand_over()
        passed = 0
        while passed < DRAIN_LIMIT and (count := self._read()):
            passed += count
        self._loop.remove_reader(self._end)
        os.close(self._end)

    def _read(self) -> int:
        """Pass on what is there; returns how much, 0 at the end or where there is nothing."""
        try:
            data = os.read(self._end, CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._sink(data)
        else:
            self._loop.remove_reader(self._end)
        return len(data)
