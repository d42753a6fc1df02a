"""Stores the items of a job that has ended in the dataset of its spider: in batches, each line once.

A line has the number that it has in its file. What is stored so far is counted in the transaction that stores it, so
an import that was killed goes on behind the last batch.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from weft import events
from weft.clock import Clock, Moment
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.items import collect_store
from weft.items.lines import LARGEST_ITEM, Read, read_lines
from weft.items.model import Harvest
from weft.items.shelving import shelve
from weft.items.tally import Tally
from weft.runs.model import storable
from weft.scrapyd import import_store

BATCH_LINES, BATCH_BYTES = 1_000, 4_000_000
"""What one transaction stores."""
CHUNK = 1 << 20
LONGEST_NAME = 100

Lines = list[bytes | None]
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


class ItemShelf:
    """Puts items of runs that have ended where they belong."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def keep(self, run: Owner, file: int) -> tuple[int, int]:
        """Store what is not stored yet; how many lines that were, and how many of them are no item."""
        done = await self._db.transact(lambda tx: self._begin(tx, run)) - 1
        number, taken, bad = 0, 0, 0
        batches = iter(batches_of(file))
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            first, number = number + 1, number + len(batch)
            if number <= done:
                continue
            reads = await asyncio.to_thread(lambda lines: [read_item(each, run.at) for each in lines], batch)
            fresh = await self._db.transact(lambda tx: self._store(tx, run, first, reads))  # noqa: B023
            taken += fresh
            bad += sum(read is None for read in reads[len(reads) - fresh :])
        await self._db.transact(lambda tx: import_store.keep_profile(tx, run.id))
        return taken, bad

    def _begin(self, tx: Transaction, run: Owner) -> int:
        dataset_id = self._dataset(tx, run)
        import_store.begin_stats(tx, run.id, dataset_id, run.stats, self._clock())
        import_store.set_dataset(tx, run.id, dataset_id)
        return import_store.counted(tx, run.id) or 1

    def _store(self, tx: Transaction, run: Owner, first: int, reads: Sequence[Read | None]) -> int:
        """One batch; how many of its lines were new."""
        place = (run.id, import_store.ATTEMPT)
        row = collect_store.lock_stats(tx, [place])[place]
        tally, before = _tally(row, run.project), row.next_seq
        tally.take(Harvest(*place, first=first), reads)
        dataset = collect_store.datasets_by_id(tx, [row.dataset_id])[row.dataset_id]
        shelve(tx, dataset, [tally], run.at)
        collect_store.save_stats(tx, [tally.row(self._clock())])
        return int(tally.next_seq - before)

    def _dataset(self, tx: Transaction, run: Owner) -> int:
        name = storable(run.spider)[:LONGEST_NAME]
        found = collect_store.dataset_named(tx, run.project, name)
        if found is not None:
            return found.id
        at = self._clock()
        dataset_id = collect_store.add_dataset(tx, run.project, name, at)
        events.append(tx, [Fact("dataset_created", run.project, run.id, None, {"dataset": name})], at)
        return dataset_id


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The run that items belong to."""

    id: int
    project: str
    spider: str
    at: Moment
    """When they were yielded, as far as that is known: when the run ended."""
    stats: str = "{}"


def batches_of(file: int) -> Iterator[Lines]:
    """The lines of a file, some at a time; None for one that is too long to be an item."""
    batch: Lines = []
    size = 0
    for line in lines_of(file):
        batch.append(line)
        size += len(line or b"")
        if len(batch) >= BATCH_LINES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def lines_of(file: int) -> Iterator[bytes | None]:
    """The lines of a file as long as it is now, but for empty ones; None for one that is too long to be held."""
    held, is_long, offset, size = bytearray(), False, 0, os.fstat(file).st_size
    while offset < size and (data := os.pread(file, min(CHUNK, size - offset), offset)):
        offset += len(data)
        *whole, rest = data.split(b"\n")
        for part in whole:
            line = None if is_long or len(held) + len(part) > LARGEST_ITEM else bytes(held) + part
            held.clear()
            is_long = False
            if line is None or line.strip():
                yield line
        held += rest
        if len(held) > LARGEST_ITEM:
            held.clear()
            is_long = True
    if is_long or held.strip():
        yield None if is_long else bytes(held)


def read_item(line: bytes | None, at: Moment) -> Read | None:
    """One line as an item of that moment; None where it is none."""
    if line is None or not _is_object(line):
        return None
    return read_lines(b'{"item":%b,"at":%d}' % (line.strip(), at))[0]


def _is_object(line: bytes) -> bool:
    """Whether the line by itself is JSON: what is put around it must not make it so."""
    try:
        _is_json(line)
        return True
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace"), strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _tally(row: Any, project: str) -> Tally:
    names = ("run_id", "attempt", "dataset_id", "next_seq", "items", "new_things", "changed_things", "refused")
    counted = {name: getattr(row, name) for name in (*names, "invalid", "stats", "told_at")}
    return Tally(project=project, task_id=None, **counted)
