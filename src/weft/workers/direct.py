"""The worker protocol on the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from weft import events
from weft.access.secrets import Secrets
from weft.clock import Clock
from weft.crawls.model import CrawlTurn, CrawlTurned
from weft.db.database import Database, Transaction
from weft.errors import Conflict, LeaseLost
from weft.events import Fact
from weft.items.collecting import Collector
from weft.items.model import Harvest
from weft.projects.fresh import Fresh
from weft.runs import lease_store
from weft.runs.leases import Leases
from weft.runs.model import Ending, Lease
from weft.workers import store
from weft.workers.opening import opened
from weft.workers.protocol import Beat, Card, LogChunk, Orders

if TYPE_CHECKING:
    from weft.crawls.desk import Desk

MOST_CARDS = 10_000
"""How many workers one process speaks for; of more than that, the oldest are asked for again."""


class Desks(Protocol):
    """Has the desk of crawls, and opens it when it is first asked for."""

    @property
    def desk(self) -> Desk: ...


class DirectProtocol:
    """Speaks for workers that may reach the database themselves."""

    def __init__(
        self, db: Database, leases: Leases, secrets: Secrets, collector: Collector, crawling: Desks, clock: Clock
    ) -> None:
        self._db, self._leases, self._secrets, self._clock = db, leases, secrets, clock
        self._collector, self._crawling, self._fresh = collector, crawling, Fresh(clock)
        self._cards: dict[int, Card] = {}

    async def join(self, card: Card, *, key_id: int | None = None, request_id: str | None = None) -> int:
        """Enter the worker; for one that comes through a gateway, under its key and once for each request."""
        worker_id = await self._db.transact(lambda tx: self._join(tx, card, key_id, request_id), urgent=True)
        self.remember(worker_id, card)
        return worker_id

    def remember(self, worker_id: int, card: Card) -> None:
        """Speak for a worker that may have joined through another process."""
        self._cards[worker_id] = card
        if len(self._cards) > MOST_CARDS:
            del self._cards[next(iter(self._cards))]

    async def lease(self, worker_id: int, want: int) -> list[Lease]:
        card = self._card(worker_id)
        return await opened(await self._leases.lease(worker_id, card.name, card.labels, want), self._secrets)

    async def heartbeat(self, worker_id: int, beat: Beat) -> Orders:
        return (await self._db.transact(lambda tx: self.beat_all(tx, [(worker_id, beat)]), urgent=True))[0]

    def beat_all(self, tx: Transaction, beats: Sequence[tuple[int, Beat]]) -> list[Orders]:
        """The beats of several workers in one transaction, which locks them in the order of their ids."""
        orders = {worker_id: self._beat(tx, worker_id, beat) for worker_id, beat in sorted(beats, key=_worker_id)}
        return [orders[worker_id] for worker_id, _ in beats]

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        await self.ship_held(worker_id, chunks)

    async def ship_held(self, worker_id: int, chunks: Sequence[LogChunk]) -> set[tuple[int, int]]:
        """Deliver pieces of live logs; return run and attempt of those that the worker does not hold."""
        return await self._leases.ship(worker_id, [msgspec.structs.asdict(chunk) for chunk in chunks])

    async def collect(self, worker_id: int, harvests: Sequence[Harvest]) -> list[int]:
        return await self._collector.collect(worker_id, self._card(worker_id).name, harvests)

    async def frontier(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurned:
        return await self._crawling.desk.turn(worker_id, run_id, attempt, asked)

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        return await self._leases.finish(worker_id, endings)

    def _card(self, worker_id: int) -> Card:
        try:
            return self._cards[worker_id]
        except KeyError:
            raise LeaseLost(str(worker_id)) from None

    def _join(self, tx: Transaction, card: Card, key_id: int | None, request_id: str | None) -> int:
        if request_id is not None and (joined := store.joined(tx, request_id)) is not None:
            worker_id, joined_with = joined
            if joined_with != key_id:
                raise Conflict("this request_id was used by another worker; make another")
            return worker_id
        at = self._clock()
        row = msgspec.structs.asdict(card) | {"labels": msgspec.json.encode(card.labels).decode()}
        row |= {"running": 0, "done": 0, "state": "online", "beats": 0, "started_at": at, "seen_at": at, "stats": "{}"}
        row |= {"key_id": key_id, "request_id": request_id}
        worker_id = store.add(tx, row)
        events.append(tx, [Fact("worker_joined", "", data={"worker": card.name, "worker_id": worker_id})], at)
        return worker_id

    def _beat(self, tx: Transaction, worker_id: int, beat: Beat) -> Orders:
        at = self._clock()
        values = {"seen_at": at, "state": beat.state, "running": beat.running, "done": beat.done}
        known = store.beat(tx, worker_id, values | {"stats": msgspec.json.encode(beat.stats).decode()})
        if known is None:
            return Orders(lost=True)
        if beat.state == store.GONE:
            name = self._card(worker_id).name
            events.append(tx, [Fact("worker_left", "", data={"worker": name, "worker_id": worker_id})], at)
        held = lease_store.leases_of(tx, worker_id)
        return Orders(
            held=tuple((row.id, row.attempt) for row in held),
            cancel=tuple((row.id, row.attempt) for row in held if row.cancel_requested),
            pause=tuple((row.id, row.attempt) for row in held if row.pause_requested),
            drain=known == store.DRAINING,
            prepare=self._fresh.codes(tx),
        )


def _worker_id(beat: tuple[int, Beat]) -> int:
    return beat[0]
