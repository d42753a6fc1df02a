"""Items of attempts: spooled on the worker's disk, and delivered to the store in batches until they are stored.

A segment is a file of JSON lines, named by the number of its first item. The process appends; the worker reads whole
lines and removes a segment once all of it is stored and another has begun. Nothing is kept in memory, so what a dead
worker leaves behind is read by the next.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import DatabaseDown, GatewayDown, WeftError
from weft.items.model import ItemBatch
from weft.untrusted_files import file_at, folder_at
from weft.workers.protocol import WorkerProtocol

MOST_BYTES = 1_000_000
MOST_ITEMS = 2_000
"""What one batch may hold; more where one item alone is larger."""

LONGEST_LINE = 64 << 20
"""A line that is longer than this has no end: what its segment still holds is not read."""

LARGEST_STATS = 4 << 20
"""Bytes of statistics that are read; what is longer is none."""

_SEGMENT = re.compile(r"\d{12,18}\.jl", re.ASCII)


@dataclass(frozen=True, slots=True)
class SpooledItems:
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

    def batch(self) -> SpooledItems | None:
        """The next items that are not stored yet; the same until ``stored`` is told. None where there are none."""
        while not (lines := self._whole_lines() if self._segment else b""):
            later = self._later()
            if later is None:
                return None
            if self._segment and (lines := self._whole_lines()):
                break  # written while we looked for what comes after
            self._go_on_with(later)
        return SpooledItems(self._next, lines.count(b"\n"), lines)

    def stored(self, batch: SpooledItems, awaited: int) -> None:
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


log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
"""How often running attempts are looked at for something new."""
RETRY_SECONDS = 0.5
LEAVING_SECONDS = 5.0
"""How long a worker that wants to end waits for a store that takes nothing."""
AWAY = (DatabaseDown, GatewayDown)
"""What no attempt is at fault for."""
LARGEST_LINE = 17_000_000
"""No store takes a larger item, and no call carries it: it is counted as one that was refused."""
REFUSED = b"null\n"
MOST_AT_ONCE = 20
"""How many attempts one call speaks of."""


class PendingItems:
    """An attempt whose items are on their way."""

    def __init__(self, run_id: int, attempt: int, folder: Path) -> None:
        self.run_id, self.attempt = run_id, attempt
        self.spool = ItemSpool(folder)
        self.is_last = False
        """Nothing more comes: once all that is there was stored, it is done."""
        self.is_empty = False
        """Nothing more came, and nothing was left, when it was last looked at."""
        self.done = asyncio.Event()
        self.told = asyncio.Event()
        self.looks = 0
        self.last_empty_look = 0
        """The last that found all stored."""
        self.deliveries = 0
        self._stats: dict[str, Any] | None = None

    def packed(self) -> tuple[ItemBatch, SpooledItems | None] | None:
        """What is new; None where nothing is. Reads files, so it is asked in a thread."""
        self.looks += 1
        is_last, self.is_empty = self.is_last, False  # in this order: what is written after that may be more
        self._stats, batch = self.spool.new_stats() or self._stats, self.spool.batch()
        self.is_empty = is_last and batch is None
        self.last_empty_look = self.looks if batch is None else self.last_empty_look
        if self._stats is None and batch is None:
            return None
        first, lines = (batch.first, batch.lines) if batch else (1, b"")
        lines = lines if len(lines) <= LARGEST_LINE else REFUSED  # then it is one line
        return ItemBatch(self.run_id, self.attempt, first, lines, self._stats), batch

    def arrived(self, batch: SpooledItems | None, awaited: int) -> None:
        """What was sent is stored, up to the item that is waited for."""
        self._stats = None
        self.deliveries += 1
        if batch is not None:
            self.spool.stored(batch, awaited)


class ItemDelivery:
    """Every attempt of a worker that yields items."""

    def __init__(self, protocol: WorkerProtocol) -> None:
        self.worker_id = 0
        self._protocol = protocol
        self._pending: dict[tuple[int, int], PendingItems] = {}
        self._news = asyncio.Event()

    def add(self, run_id: int, attempt: int, folder: Path) -> None:
        self._pending[run_id, attempt] = PendingItems(run_id, attempt, folder)

    async def finish(self, run_id: int, attempt: int, leaving: asyncio.Event | None = None) -> bool:
        """Wait until all that the attempt has yielded is stored, or is known never to be.

        False where its worker is ``leaving`` and the store takes nothing for a while: then it is left behind.
        """
        pending = self._pending.get((run_id, attempt))
        if pending is None:
            return True
        pending.is_last = True
        self._news.set()
        stored = asyncio.ensure_future(pending.done.wait())
        waits = {stored} if leaving is None else {stored, asyncio.ensure_future(leaving.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            before = -1
            while not pending.done.is_set() and pending.deliveries != before:
                before = pending.deliveries
                await asyncio.wait({stored}, timeout=LEAVING_SECONDS)
        finally:
            for wait in waits:
                wait.cancel()
        return pending.done.is_set()

    async def catch_up(self, run_id: int, attempt: int) -> None:
        """Wait until all is stored that the attempt has yielded so far."""
        pending = self._pending.get((run_id, attempt))
        if pending is None:
            return
        wanted = pending.looks + 1
        while pending.last_empty_look < wanted and not pending.done.is_set():
            pending.told.clear()
            self._news.set()
            await pending.told.wait()

    async def run_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):  # wait_for loses a cancellation that comes with the news
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            try:
                while await self.tick():
                    pass
            except Exception:  # without this task no attempt would ever end
                log.exception("items not delivered")
                await asyncio.sleep(RETRY_SECONDS)

    async def tick(self) -> int:
        """Deliver what is new, a batch of each attempt; return how many had something."""
        delivered = 0
        for group in _groups(list(self._pending.values())):
            delivered += await self._deliver(group)
        return delivered

    async def _deliver(self, attempts: Sequence[PendingItems]) -> int:
        packed = await asyncio.to_thread(_all_batches, attempts)
        harvests = [harvest for _, harvest, _ in packed if harvest is not None]
        try:
            awaited = iter(await self._protocol.collect(self.worker_id, harvests) if harvests else [])
        except Exception as problem:  # items must be stored, whatever stands in the way
            return await self._deliver_apart(attempts, problem)
        for pending, harvest, batch in packed:
            self._told(pending, batch, harvest is not None, next(awaited) if harvest is not None else 0)
        return sum(batch is not None for _, _, batch in packed)

    async def _deliver_apart(self, attempts: Sequence[PendingItems], problem: Exception) -> int:
        """Go on after a failure: one attempt may be at fault, and the others need not wait for it."""
        if len(attempts) > 1 and not isinstance(problem, AWAY):
            return sum([await self._deliver([pending]) for pending in attempts])
        log.warning("items not stored yet", extra={"why": str(problem)}, exc_info=not isinstance(problem, WeftError))
        await asyncio.sleep(RETRY_SECONDS)
        return 0

    def _told(self, pending: PendingItems, batch: SpooledItems | None, was_sent: bool, awaited: int) -> None:
        if was_sent and (awaited == 0 or (batch is not None and awaited < batch.first)):
            log.error("items refused", extra={"run_id": pending.run_id, "attempt": pending.attempt, "awaited": awaited})
            self._forget(pending)
        elif was_sent:
            pending.arrived(batch, awaited)
        pending.told.set()
        if pending.is_empty:  # and not merely now: it may have yielded more while this was under way
            self._forget(pending)

    def _forget(self, pending: PendingItems) -> None:
        self._pending.pop((pending.run_id, pending.attempt), None)
        pending.done.set()
        pending.told.set()


def _all_batches(attempts: Sequence[PendingItems]) -> list[tuple[PendingItems, ItemBatch | None, SpooledItems | None]]:
    return [(pending, *(_next_batch(pending) or (None, None))) for pending in attempts]


def _next_batch(pending: PendingItems) -> tuple[ItemBatch, SpooledItems | None] | None:
    try:
        return pending.packed()
    except OSError as problem:  # the machine is short of something; the items are there
        log.error("items not read yet", extra={"run_id": pending.run_id, "why": str(problem)})
    except Exception:  # what one process has written must not hold up what the others yield
        log.exception("items not read", extra={"run_id": pending.run_id})
        pending.is_empty = pending.is_last
    return None


def _groups(attempts: list[PendingItems]) -> list[list[PendingItems]]:
    return [attempts[start : start + MOST_AT_ONCE] for start in range(0, len(attempts), MOST_AT_ONCE)]
