"""Delivers the items of datasets to their destinations, each at least once.

How far each attempt has come is kept for each destination. An attempt's items are stored in the order of their
numbers, so all that is needed is the number of the last one that has arrived: no other transaction can put one before
it. Which items go together is fixed before they are sent and struck off after they have arrived, so that whoever
continues after a process that died sends the same ones under the same name. One process leads to save work; nothing is
wrong when two believe that they do.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from weft.access.secrets import Secrets, names_in
from weft.clock import Clock, iso, seconds
from weft.db.database import Database, Transaction
from weft.errors import DatabaseDown, WeftError
from weft.items import destination_store as store
from weft.items.destination import DeliveryBatch, Destination, opened_url, pause_seconds, safe_join
from weft.items.exporters import export, with_ids
from weft.ports import Blobs, ItemTable

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 100
MOST_ITEMS = 5_000
MOST_BYTES = 16_000_000
GATHER_SECONDS = 30.0
"""How long items of a run that goes on may wait for more."""

SEND_SECONDS = 300.0
LOOK_SHARE = 20
"""To look for work takes one part of so many, at most."""


class DeliveryLeader(Protocol):
    """Who knows whether this process does the work."""

    async def leads(self) -> bool: ...

    async def resign(self) -> None: ...


class Deliverer:
    def __init__(
        self,
        db: Database,
        secrets: Secrets,
        leader: DeliveryLeader,
        clock: Clock,
        *,
        folder: str,
        open_blobs: Callable[[str], Blobs],
        open_table: Callable[[str], ItemTable],
    ) -> None:
        self._db, self._secrets, self._leader, self._clock = db, secrets, leader, clock
        self._folder, self._open_blobs, self._open_table = folder, open_blobs, open_table
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._look_at: dict[int, float] = {}

    async def tick(self) -> int:
        """Start sending to each destination that is due; return to how many.

        Sending goes on by itself, each destination apart, so that a slow one keeps nobody waiting.
        """
        if not await self._db.read(store.has_destinations) or not await self._leader.leads():
            return 0
        self._sending = {key: sending for key, sending in self._sending.items() if not sending.done()}
        now, before = self._clock(), len(self._sending)
        for destination in await self._db.read(lambda tx: store.due(tx, now)):
            waits = time.monotonic() < self._look_at.get(destination.id, 0.0)
            if destination.id not in self._sending and not waits:
                self._sending[destination.id] = asyncio.create_task(self._send_due(destination))
        return len(self._sending) - before

    async def rest(self) -> None:
        """Return when everything that was due has been tried."""
        await asyncio.gather(*self._sending.values())

    async def close(self) -> None:
        """Stop at once; what is under way is sent again by the next deliverer."""
        for sending in self._sending.values():
            sending.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
        await self._leader.resign()

    async def _send_due(self, destination: Destination) -> None:
        extra = {"destination_id": destination.id, "project": destination.project, "dataset": destination.dataset}
        try:
            while stretches := await self._next(destination):
                for stretch in stretches:
                    async with asyncio.timeout(SEND_SECONDS):
                        await self._deliver(destination, stretch)
        except DatabaseDown as problem:
            log.warning("delivery put off", extra=extra | {"why": str(problem)})
        except (WeftError, OSError) as problem:
            log.warning("delivery failed", extra=extra | {"why": str(problem)})
            await self._fail(destination, _shown_problem(problem))
        except Exception:
            log.exception("delivery failed", extra=extra)
            await self._fail(destination, "weft itself failed; its log tells more")

    async def _next(self, destination: Destination) -> list[DeliveryBatch]:
        """What is to be sent now; nothing where the destination was removed.

        Many attempts take long to look through, so the next look comes the later, and nobody else waits for it.
        """
        began, now = time.monotonic(), self._clock()
        look = partial(store.pending, enough=MOST_ITEMS, since=now - seconds(GATHER_SECONDS), limit=MOST_ATTEMPTS)
        rows = await self._db.read(lambda tx: look(tx, destination))
        self._look_at[destination.id] = time.monotonic() + LOOK_SHARE * (time.monotonic() - began)

        def work(tx: Transaction) -> list[DeliveryBatch]:
            if store.get(tx, destination.id) is None:
                return []
            found = (_next_batch(tx, destination, row, now) for row in rows)
            return [stretch for stretch in found if stretch is not None]

        return await self._db.transact(work) if rows else []

    async def _deliver(self, destination: Destination, stretch: DeliveryBatch) -> None:
        rows = await self._db.read(lambda tx: store.rows(tx, stretch))
        url = await self._opened(destination)
        if rows and destination.is_table:
            await self._open_table(url).upsert([_table_row(destination, row) for row in rows], destination.columns)
        elif rows:
            data = await _file(destination, [with_ids(row, msgspec.json.decode(row.data)) for row in rows])
            await self._open_blobs(url).put(stretch.file_name(destination.format), data)
        at = self._clock()
        await self._db.transact(lambda tx: store.confirm(tx, destination.id, stretch, len(rows), at))

    async def _opened(self, destination: Destination) -> str:
        if destination.url.startswith("file:"):
            return await asyncio.to_thread(safe_join, self._folder, destination.url)
        wanted = [(destination.project, name) for name in names_in(destination.url)]
        opened = await self._secrets.open(wanted) if wanted else {}
        return opened_url(destination.url, {name: value for (_, name), value in opened.items()})

    async def _fail(self, destination: Destination, problem: str) -> None:
        def work(tx: Transaction) -> None:
            now_is = store.get(tx, destination.id)
            if now_is is not None:
                pause = pause_seconds(now_is.failures + 1, random.random())
                store.fail(tx, now_is, problem[:1000], self._clock() + seconds(pause))

        await self._db.transact(work)


def _shown_problem(problem: Exception) -> str:
    """A problem as it is shown: without the names of folders on this machine."""
    if isinstance(problem, TimeoutError):
        return f"the items were not taken within {SEND_SECONDS:g} s"
    return problem.strerror or "it cannot be written to" if isinstance(problem, OSError) else str(problem)


def _next_batch(tx: Transaction, destination: Destination, row: Any, now: int) -> DeliveryBatch | None:
    """The items of an attempt that go next; None while it is better to wait for more."""
    delivered = row.delivered or 0
    if row.sending is not None and row.sending > delivered:
        return DeliveryBatch(row.run_id, row.attempt, delivered + 1, row.sending)
    if row.since is None:
        store.start_waiting(tx, destination.id, row.run_id, row.attempt, now)
    count = row.next_seq - 1 - delivered
    if row.since is None and not row.ended and count < MOST_ITEMS:
        return None
    last = _last(tx, row.run_id, row.attempt, delivered + 1, min(count, MOST_ITEMS))
    stretch = DeliveryBatch(row.run_id, row.attempt, delivered + 1, last)
    return stretch if store.send(tx, destination.id, stretch) else None


def _last(tx: Transaction, run_id: int, attempt: int, first: int, count: int) -> int:
    """The number of the last item that goes along: so many, but no more bytes than one message may have."""
    size, last = 0, first + count - 1
    for seq, length in store.sizes(tx, run_id, attempt, first, count):
        size += length
        if size > MOST_BYTES:
            return max(first, int(seq) - 1)
    return last


async def _file(destination: Destination, rows: list[dict[str, Any]]) -> bytes:
    async def source() -> AsyncIterator[dict[str, Any]]:
        for row in rows:
            yield row

    fields = ("weft_run", "weft_attempt", "weft_seq", *destination.fields) if destination.fields else ()
    return b"".join([piece async for piece in export(destination.format, source, fields)])


def _table_row(destination: Destination, row: Any) -> dict[str, Any]:
    ids = {"run": row.run_id, "attempt": row.attempt, "seq": row.seq, "record": row.record_id, "revision": row.revision}
    of = {"dataset": f"{destination.project}/{destination.dataset}", "key": row.key, "at": iso(row.at)}
    return ids | of | {"data": msgspec.json.decode(row.data)}
