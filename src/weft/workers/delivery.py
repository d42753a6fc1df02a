"""Brings what attempts yield to the store: in batches, in order, for as long as it takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.errors import DatabaseDown, GatewayDown, WeftError
from weft.items.model import Harvest
from weft.workers.item_spool import Batch, ItemSpool
from weft.workers.protocol import WorkerProtocol

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


class Parcel:
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

    def packed(self) -> tuple[Harvest, Batch | None] | None:
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
        return Harvest(self.run_id, self.attempt, first, lines, self._stats), batch

    def arrived(self, batch: Batch | None, awaited: int) -> None:
        """What was sent is stored, up to the item that is waited for."""
        self._stats = None
        self.deliveries += 1
        if batch is not None:
            self.spool.stored(batch, awaited)


class Delivery:
    """Every attempt of a worker that yields items."""

    def __init__(self, protocol: WorkerProtocol) -> None:
        self.worker_id = 0
        self._protocol = protocol
        self._parcels: dict[tuple[int, int], Parcel] = {}
        self._news = asyncio.Event()

    def add(self, run_id: int, attempt: int, folder: Path) -> None:
        self._parcels[run_id, attempt] = Parcel(run_id, attempt, folder)

    async def finish(self, run_id: int, attempt: int, leaving: asyncio.Event | None = None) -> bool:
        """Wait until all that the attempt has yielded is stored, or is known never to be.

        False where its worker is ``leaving`` and the store takes nothing for a while: then it is left behind.
        """
        parcel = self._parcels.get((run_id, attempt))
        if parcel is None:
            return True
        parcel.is_last = True
        self._news.set()
        stored = asyncio.ensure_future(parcel.done.wait())
        waits = {stored} if leaving is None else {stored, asyncio.ensure_future(leaving.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            before = -1
            while not parcel.done.is_set() and parcel.deliveries != before:
                before = parcel.deliveries
                await asyncio.wait({stored}, timeout=LEAVING_SECONDS)
        finally:
            for wait in waits:
                wait.cancel()
        return parcel.done.is_set()

    async def catch_up(self, run_id: int, attempt: int) -> None:
        """Wait until all is stored that the attempt has yielded so far."""
        parcel = self._parcels.get((run_id, attempt))
        if parcel is None:
            return
        wanted = parcel.looks + 1
        while parcel.last_empty_look < wanted and not parcel.done.is_set():
            parcel.told.clear()
            self._news.set()
            await parcel.told.wait()

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
        for group in _groups(list(self._parcels.values())):
            delivered += await self._deliver(group)
        return delivered

    async def _deliver(self, parcels: Sequence[Parcel]) -> int:
        packed = await asyncio.to_thread(_all_packed, parcels)
        harvests = [harvest for _, harvest, _ in packed if harvest is not None]
        try:
            awaited = iter(await self._protocol.collect(self.worker_id, harvests) if harvests else [])
        except Exception as problem:  # items must be stored, whatever stands in the way
            return await self._deliver_apart(parcels, problem)
        for parcel, harvest, batch in packed:
            self._told(parcel, batch, harvest is not None, next(awaited) if harvest is not None else 0)
        return sum(batch is not None for _, _, batch in packed)

    async def _deliver_apart(self, parcels: Sequence[Parcel], problem: Exception) -> int:
        """Go on after a failure: one attempt may be at fault, and the others need not wait for it."""
        if len(parcels) > 1 and not isinstance(problem, AWAY):
            return sum([await self._deliver([parcel]) for parcel in parcels])
        log.warning("items not stored yet", extra={"why": str(problem)}, exc_info=not isinstance(problem, WeftError))
        await asyncio.sleep(RETRY_SECONDS)
        return 0

    def _told(self, parcel: Parcel, batch: Batch | None, was_sent: bool, awaited: int) -> None:
        if was_sent and (awaited == 0 or (batch is not None and awaited < batch.first)):
            log.error("items refused", extra={"run_id": parcel.run_id, "attempt": parcel.attempt, "awaited": awaited})
            self._forget(parcel)
        elif was_sent:
            parcel.arrived(batch, awaited)
        parcel.told.set()
        if parcel.is_empty:  # and not merely now: it may have yielded more while this was under way
            self._forget(parcel)

    def _forget(self, parcel: Parcel) -> None:
        self._parcels.pop((parcel.run_id, parcel.attempt), None)
        parcel.done.set()
        parcel.told.set()


def _all_packed(parcels: Sequence[Parcel]) -> list[tuple[Parcel, Harvest | None, Batch | None]]:
    return [(parcel, *(_packed(parcel) or (None, None))) for parcel in parcels]


def _packed(parcel: Parcel) -> tuple[Harvest, Batch | None] | None:
    try:
        return parcel.packed()
    except OSError as problem:  # the machine is short of something; the items are there
        log.error("items not read yet", extra={"run_id": parcel.run_id, "why": str(problem)})
    except Exception:  # what one process has written must not hold up what the others yield
        log.exception("items not read", extra={"run_id": parcel.run_id})
        parcel.is_empty = parcel.is_last
    return None


def _groups(parcels: list[Parcel]) -> list[list[Parcel]]:
    return [parcels[start : start + MOST_AT_ONCE] for start in range(0, len(parcels), MOST_AT_ONCE)]
