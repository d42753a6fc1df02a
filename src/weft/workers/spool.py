"""What a run prints, kept on the worker's disk until it is shipped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from weft.foreign_files import create
from weft.redaction import MaskedStream, Values
from weft.workers.echo import Echoed


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
        heard: Echoed | None = None,
    ) -> None:
        self._make_folder, self._cap, self._masked, self._heard = make_folder, cap, masked, heard
        self._file, self._full = -1, ""
        self.written = self.dropped = self.shipped = self.seq = self._offered = 0

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
            self._file = create(self._make_folder() / "log")
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
