"""The log of an attempt on its worker: spooled on disk while it is shipped live, stored when the attempt has ended.

On request each record is also written to stdout as one line of JSON, for whoever collects the logs of machines.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import msgspec

from weft.clock import iso, now
from weft.errors import Conflict, GatewayDown, Invalid, LeaseLost, NotAllowed, WeftError
from weft.logs.records import LogParser, LogRecord
from weft.logs.storage import store_log
from weft.ports import Blobs
from weft.redaction import MaskedStream, Values
from weft.runs.model import Ending, Lease
from weft.untrusted_files import create, file_at
from weft.workers.remote.wire import log_key

MOST_WAITING = 10_000
"""Lines that wait for a reader who is slow; what is said meanwhile is counted and left out. Runs never wait."""
GOODBYE_SECONDS = 2.0


class StdoutLogs:
    """Writes lines in a thread of its own, for all runs of one worker."""

    def __init__(self, worker: str, stream: BinaryIO | None = None) -> None:
        self._worker, self._stream = worker, stream or sys.stdout.buffer
        self._lines: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._dropped = 0
        threading.Thread(target=self._write_forever, name="echo", daemon=True).start()
        atexit.register(self.close)

    def of(self, lease: Lease) -> StdoutLog:
        """Hears what an attempt prints."""
        fields: dict[str, Any] = {"run_id": lease.run_id, "attempt": lease.attempt, "project": lease.project}
        return StdoutLog(self, fields | {"task": lease.task})

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


class StdoutLog:
    """The log of one attempt on its way to stdout."""

    __slots__ = ("_echo", "_fields", "_parser")

    def __init__(self, echo: StdoutLogs, fields: dict[str, Any]) -> None:
        self._echo, self._fields, self._parser = echo, fields, LogParser()

    def feed(self, data: bytes) -> None:
        self._tell(self._parser.feed(data))

    def end(self) -> None:
        self._tell(self._parser.end())

    def _tell(self, records: list[LogRecord]) -> None:
        for record in records:
            said = {name: value for name in _SAID if (value := getattr(record, name))}
            self._echo.tell(record.extra | {"at": iso(record.at or now())} | said | self._fields)


def _encoded(line: dict[str, Any], worker: str) -> bytes:
    return msgspec.json.encode(line | {"worker": worker}) + b"\n"


_SAID = ("level", "logger", "message", "spider", "url", "status", "exception")


NAME = "log"


class LogSpool:
    """The log of one attempt: written live, masked, capped, read back in pieces."""

    __slots__ = (
        "_cap",
        "_file",
        "_full",
        "_heard",
        "_make_folder",
        "_masked",
        "_offered",
        "dropped",
        "seq",
        "shipped",
        "written",
    )

    def __init__(
        self,
        make_folder: Callable[[], Path],
        cap: int,
        masked: MaskedStream | None = None,
        heard: StdoutLog | None = None,
    ) -> None:
        self._make_folder, self._cap, self._masked, self._heard = make_folder, cap, masked, heard
        self._file, self._full = -1, ""
        self.written = self.dropped = self.shipped = self.seq = self._offered = 0

    @classmethod
    @contextmanager
    def left_in(cls, folder: Path, most: int) -> Iterator[LogSpool | None]:
        """The log that a dead worker has left in the folder of an attempt; None where there is none to keep.

        The attempt could write there as well, so no link is followed, and no more is read than a log may have.
        """
        with file_at(folder / NAME) as file:
            spool = None
            if file is not None and (size := min(os.fstat(file).st_size, most)):
                spool = cls(lambda: folder, most)
                spool._file, spool.written = file, size
            yield spool

    def write(self, data: bytes) -> None:
        self._write(data if self._masked is None else self._masked.feed(data))

    def hide(self, values: Values) -> None:
        """Mask these from now on."""
        if self._masked is not None:
            self._write(self._masked.end())
        self._masked = MaskedStream(values) if values.forms else None

    def end(self) -> None:
        """Nothing more is written: keep what was held back, because it could have become a secret."""
        if self._masked is not None:
            self._write(self._masked.end())
        if self._heard is not None:
            self._heard.end()

    def _write(self, data: bytes) -> None:
        room = self._cap - self.written
        kept = data[:room] if len(data) > room else data
        self.dropped += len(data) - len(kept)
        if not kept:
            return
        if self._heard is not None:
            self._heard.feed(kept)
        before = self.written
        try:
            self._append(kept)
        except OSError as problem:  # no room on the disk: the run goes on, its log has a gap that is counted
            self._full = problem.strerror or str(problem)
            self.dropped += len(kept) - (self.written - before)

    def _append(self, kept: bytes) -> None:
        if self._file < 0:
            self._file = create(self._make_folder() / NAME)
        view = memoryview(kept)
        while view:
            count = os.pwrite(self._file, view, self.written)
            self.written += count
            view = view[count:]

    def unshipped(self, most: int = 256_000) -> bytes:
        """The next piece that was not shipped yet; the same bytes for the same number, however often it is asked."""
        if self._file < 0 or self.shipped >= self.written:
            return b""
        if self._offered <= self.shipped:
            self._offered = min(self.shipped + most, self.written)
        return os.pread(self._file, self._offered - self.shipped, self.shipped)

    def mark_shipped(self, data: bytes) -> None:
        self.shipped += len(data)
        self.seq += 1

    @property
    def size(self) -> int:
        """How many bytes are read back, with a last line that says what was not kept."""
        return self.written + len(self._note())

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset`` on."""
        kept = os.pread(self._file, max(0, min(size, self.written - offset)), offset) if self._file >= 0 else b""
        after = max(0, offset - self.written)
        return kept + self._note()[after : after + size - len(kept)]

    def _note(self) -> bytes:
        if not self.dropped:
            return b""
        why = (
            f"the worker could not write them ({self._full})"
            if self._full
            else f"the log is capped at {self._cap} bytes"
        )
        return f"\n[weft] {self.dropped} bytes dropped: {why}\n".encode()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


log = logging.getLogger(__name__)

KEEP_SECONDS = 60.0
"""How long a store that does not answer is tried again."""
LONGEST_PAUSE_SECONDS = 5.0
FINAL = (LeaseLost, NotAllowed, Invalid, Conflict)
"""What no other try would change."""


@runtime_checkable
class LogUploader(Protocol):
    """A blob store that has its own way with logs: a gateway takes them in pieces."""

    async def keep_log(self, run_id: int, attempt: int, spool: LogSpool) -> None: ...


@dataclass(frozen=True, slots=True)
class LogOutcome:
    """What became of a log."""

    key: str | None = None
    """Where it is kept; None where it is not, or nothing was printed."""
    size: int = 0
    problem: str = ""
    """Why it is not kept."""
    is_left: bool = False
    """It is still here, for the next worker of this name."""


def late_ending(run_id: int, attempt: int, kept: LogOutcome) -> Ending | None:
    """What is told of an attempt that is another's by now: where its log is, and nothing else."""
    if kept.key is None:
        return None
    return Ending(run_id, attempt, "released", "its worker was lost", log_key=kept.key, log_bytes=kept.size)


async def store_attempt_log(
    blobs: Blobs, run_id: int, attempt: int, spool: LogSpool, hurried: asyncio.Event
) -> LogOutcome:
    """Keep the log of an attempt.

    Tries for a while, and only once where its worker is in a hurry. A gateway that does not answer is waited for: how
    the attempt ended could not be told either.
    """
    if not spool.written:
        return LogOutcome()
    deadline, pause = time.monotonic() + KEEP_SECONDS, 0.1
    while True:
        try:
            return LogOutcome(await _store(blobs, run_id, attempt, spool), spool.written)
        except (OSError, WeftError) as problem:
            is_late = time.monotonic() + pause > deadline and not isinstance(problem, GatewayDown)
            if isinstance(problem, FINAL) or hurried.is_set() or is_late:
                log.error("log not kept", extra={"run_id": run_id, "attempt": attempt, "why": str(problem)})
                return LogOutcome(None, 0, f"its log was not kept: {problem}", is_left=not isinstance(problem, FINAL))
            log.warning("log not kept yet", extra={"run_id": run_id, "attempt": attempt, "why": str(problem)})
        await asyncio.wait([waiting := asyncio.create_task(hurried.wait())], timeout=pause * random.uniform(0.5, 1.0))
        waiting.cancel()
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def _store(blobs: Blobs, run_id: int, attempt: int, spool: LogSpool) -> str:
    key = log_key(run_id, attempt)
    if isinstance(blobs, LogUploader):
        await blobs.keep_log(run_id, attempt, spool)
    else:
        await store_log(blobs, key, spool.size, spool.read)
    return key
