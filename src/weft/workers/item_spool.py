"""What an attempt yields, kept on the worker's disk by its own process until it is stored.

A segment is a file of JSON lines, named by the number of its first item. The process appends; the worker reads whole
lines and removes a segment once all of it is stored and another has begun. Nothing is kept in memory, so what a dead
worker leaves behind is read by the next.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

MOST_BYTES = 1_000_000
MOST_ITEMS = 2_000
"""What one batch may hold; more where one item alone is larger."""

LONGEST_LINE = 64 << 20
"""A line that is longer than this has no end: it is passed over as one item that cannot be stored."""


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
        if not self._segment and not self._open_next():
            return None
        while (lines := self._whole_lines()) == b"":
            if not self._open_next():
                return None
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
        try:
            changed = self._stats.stat().st_mtime_ns
            if changed == self._stats_seen:
                return None
            told = msgspec.json.decode(self._stats.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        self._stats_seen = changed
        return stats_of(told) if isinstance(told, dict) else None

    def _whole_lines(self) -> bytes:
        path, most = self._items / _name(self._segment), MOST_BYTES
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(self._offset)
                data = file.read(most)
                while b"\n" not in data and len(data) == most and most < LONGEST_LINE:
                    most *= 2
                    data += file.read(most - len(data))
        except FileNotFoundError:
            return b""
        return _at_most(data[: data.rfind(b"\n") + 1], MOST_ITEMS)

    def _open_next(self) -> bool:
        """Go on with the next segment, where there is one; the process begins it when the one before is whole."""
        try:
            segments = sorted(int(name[:-3]) for name in os.listdir(self._items) if name.endswith(".jl"))
        except FileNotFoundError:
            return False
        later = [first for first in segments if first > self._segment]
        if not later:
            return False
        if self._segment:
            (self._items / _name(self._segment)).unlink(missing_ok=True)
        self._segment, self._offset = later[0], 0
        self._next = later[0]
        return True


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
