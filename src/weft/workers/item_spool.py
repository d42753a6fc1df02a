"""What an attempt yields, kept on the worker's disk by its own process until it is stored.

A segment is a file of JSON lines, named by the number of its first item. The process appends; the worker reads whole
lines and removes a segment once all of it is stored and another has begun. Nothing is kept in memory, so what a dead
worker leaves behind is read by the next.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft.foreign_files import file_at, folder_at

MOST_BYTES = 1_000_000
MOST_ITEMS = 2_000
"""What one batch may hold; more where one item alone is larger."""

LONGEST_LINE = 64 << 20
"""A line that is longer than this has no end: what its segment still holds is not read."""

LARGEST_STATS = 4 << 20
"""Bytes of statistics that are read; what is longer is none."""

_SEGMENT = re.compile(r"\d{12,18}\.jl", re.ASCII)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some items, and where they end in their segment."""

    first: int
    count: int
    lines: bytes


class ItemSpool:
    """The items and statistics of one attempt."""

    def __init__(self, folder: Path) -> None:
        self._items, self._stats = folder / "items", folder / "stats.json"
        self._segment = 0
        self._offset = 0
        self._next = 1
        self._stats_seen = 0

    def batch(self) -> Batch | None:
        """The next items that are not stored yet; the same until ``stored`` is told. None where there are none."""
        while not (lines := self._whole_lines() if self._segment else b""):
            later = self._later()
            if later is None:
                return None
            if self._segment and (lines := self._whole_lines()):
                break  # written while we looked for what comes after
            self._go_on_with(later)
        return Batch(self._next, lines.count(b"\n"), lines)

    def stored(self, batch: Batch, awaited: int) -> None:
        """Go on behind ``batch``, or where the store says that it waits for another item."""
        if awaited == batch.first + batch.count:
            self._offset += len(batch.lines)
            self._next = awaited
        elif batch.first < awaited < batch.first + batch.count:
            known = _line_ends(batch.lines, awaited - batch.first)
            self._offset += known
            self._next = awaited
        elif awaited > batch.first:  # stored by a worker that died before it could say so
            self._offset += len(batch.lines)
            self._next += batch.count

    def new_stats(self) -> dict[str, Any] | None:
        """What the process last said of itself, once for each time that it did."""
        with file_at(self._stats) as file:
            found = os.fstat(file) if file is not None else None
            if file is None or found is None or found.st_mtime_ns == self._stats_seen:
                return None
            self._stats_seen = found.st_mtime_ns
            if found.st_size > LARGEST_STATS:
                return None
            text = os.read(file, LARGEST_STATS)
        try:
            told = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        return stats_of(told) if isinstance(told, dict) else None

    def _whole_lines(self) -> bytes:
        with folder_at(self._items) as items:
            if items is None:
                return b""
            with file_at(_name(self._segment), items) as file:
                data = b"" if file is None else _read(file, self._offset)
        return _at_most(data[: data.rfind(b"\n") + 1], MOST_ITEMS)

    def _later(self) -> int | None:
        """The next segment, where there is one: the process begins it when the one before is whole."""
        with folder_at(self._items) as items:
            names = os.listdir(items) if items is not None else []
        firsts = (int(name[:-3]) for name in names if _SEGMENT.fullmatch(name))
        return min((first for first in firsts if first > self._segment), default=None)

    def _go_on_with(self, segment: int) -> None:
        """Leave the segment, all of which is stored, for another."""
        if self._segment:
            with folder_at(self._items) as items:
                if items is not None:
                    _remove(_name(self._segment), items)
        self._segment, self._offset, self._next = segment, 0, segment


def _read(file: int, offset: int) -> bytes:
    """Some lines from there on; one alone where it is larger than a batch, none where it has no end."""
    most = MOST_BYTES
    data = os.pread(file, most, offset)
    if b"\n" in data:
        return data
    while b"\n" not in data and len(data) == most and most < LONGEST_LINE:
        most *= 2
        data += os.pread(file, most - len(data), offset + len(data))
    return data[: data.find(b"\n") + 1]


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def stats_of(told: dict[str, Any]) -> dict[str, Any]:
    """Scrapy's statistics, and beside them what weft has measured."""
    stats = told.get("stats")
    own = {f"weft/{name}": told[name] for name in ("memory_bytes", "cpu_seconds", "isolation") if name in told}
    return {**(stats if isinstance(stats, dict) else {}), **own}


def has_items(folder: Path) -> bool:
    """Whether a process has yielded something there."""
    return (folder / "items").is_dir()


def _name(first: int) -> str:
    return f"{first:012d}.jl"


def _at_most(lines: bytes, count: int) -> bytes:
    return lines if lines.count(b"\n") <= count else lines[: _line_ends(lines, count)]


def _line_ends(lines: bytes, count: int) -> int:
    """Where line number ``count`` ends."""
    end = 0
    for _ in range(count):
        end = lines.index(b"\n", end) + 1
    return end
