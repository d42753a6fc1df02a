"""What runs say, once more: each record as one line of JSON on stdout, for whoever collects the logs of machines."""

from __future__ import annotations

import atexit
import queue
import sys
import threading
import time
from typing import Any, BinaryIO

import msgspec

from weft.clock import iso, now
from weft.runs.log_records import LogParser, LogRecord
from weft.runs.model import Lease

MOST_WAITING = 10_000
"""Lines that wait for a reader who is slow; what is said meanwhile is counted and left out. Runs never wait."""
GOODBYE_SECONDS = 2.0


class Echo:
    """Writes lines in a thread of its own, for all runs of one worker."""

    def __init__(self, worker: str, stream: BinaryIO | None = None) -> None:
        self._worker, self._stream = worker, stream or sys.stdout.buffer
        self._lines: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._dropped = 0
        threading.Thread(target=self._write_forever, name="echo", daemon=True).start()
        atexit.register(self.close)

    def of(self, lease: Lease) -> Echoed:
        """Hears what an attempt prints."""
        fields: dict[str, Any] = {"run_id": lease.run_id, "attempt": lease.attempt, "project": lease.project}
        return Echoed(self, fields | {"task": lease.task})

    def tell(self, line: dict[str, Any]) -> None:
        try:
            if self._dropped:
                lost = f"{self._dropped} lines dropped: stdout was not read fast enough"
                self._lines.put_nowait(_encoded({"at": iso(now()), "level": "WARNING", "message": lost}, self._worker))
                self._dropped = 0
            self._lines.put_nowait(_encoded(line, self._worker))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Give the reader a moment to take what waits."""
        until = time.monotonic() + GOODBYE_SECONDS
        while self._lines.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.01)

    def _write_forever(self) -> None:
        try:
            while True:
                line = self._lines.get()
                self._stream.write(line)
                self._stream.flush()
                self._lines.task_done()
        except (OSError, ValueError):
            return  # Nobody reads any more: lines fill the queue and are dropped.


class Echoed:
    """The log of one attempt on its way to stdout."""

    __slots__ = ("_echo", "_fields", "_parser")

    def __init__(self, echo: Echo, fields: dict[str, Any]) -> None:
        self._echo, self._fields, self._parser = echo, fields, LogParser()

    def feed(self, data: bytes) -> None:
        self._tell(self._parser.feed(data))

    def end(self) -> None:
        self._tell(self._parser.end())

    def _tell(self, records: list[LogRecord]) -> None:
        for record in records:
            said = {name: value for name in _SAID if (value := getattr(record, name))}
            self._echo.tell({"at": iso(record.at or now())} | said | self._fields)


def _encoded(line: dict[str, Any], worker: str) -> bytes:
    return msgspec.json.encode(line | {"worker": worker}) + b"\n"


_SAID = ("level", "logger", "message", "spider", "url", "status", "exception")
