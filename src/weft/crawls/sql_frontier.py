"""The frontier in weft's own database. One turn is one transaction (``frontier_turn.py``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from weft.clock import SECOND, Clock, Moment
from weft.crawl_ports import FAILED, SKIPPED, Counts, Known, KnownHost, Limits, Turn, Turned
from weft.crawls import frontier_store, known_store
from weft.crawls.frontier_turn import FrontierTurn
from weft.db.database import Database, Transaction
from weft.errors import DatabaseDown, FrontierDown, Invalid

T = TypeVar("T")

MOST_HOSTS = 200_000
"""How many hosts' ids are remembered, so that they need not be asked for."""

MOST_AT_ONCE = 2_000
"""How many addresses one transaction changes where all of a crawl are changed."""


FIRST_LOOK, MOST_LOOKED_AT = 1_000, 50_000
"""How many addresses one read goes through where few of them may be wanted."""

LIMITS_COUNT: Moment = SECOND
"""How long limits count that were read, until another process's are seen."""


class SqlFrontier:
    """Any number of processes may have one on the same database."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._ids: dict[str, int] = {}
        self._limits: dict[int, tuple[Limits, Moment]] = {}

    async def open(self, crawl: int, limits: Limits) -> None:
        await self._transact(lambda tx: frontier_store.set_limits(tx, crawl, limits))
        self._limits.pop(crawl, None)

    async def turn(self, crawl: int, holder: str, turn: Turn) -> Turned:
        def work(tx: Transaction) -> Turned:
            at = self._clock()
            made = FrontierTurn(tx, crawl, holder, turn, at, self._limits_of(tx, crawl, at))
            turned, ids = made.make(self._ids)
            tx.after_commit(lambda: self._remember(ids))
            return turned

        return await self._transact(work)

    def _limits_of(self, tx: Transaction, crawl: int, at: Moment) -> Limits:
        known, read_at = self._limits.get(crawl, (Limits(), -LIMITS_COUNT))
        if at - read_at < LIMITS_COUNT:
            return known
        limits = frontier_store.limits(tx, crawl)
        if limits is not None:
            self._limits[crawl] = limits, at
        return limits or Limits()

    def _remember(self, ids: dict[str, int]) -> None:
        if len(self._ids) > MOST_HOSTS:
            self._ids = {}
        self._ids.update(ids)

    async def counts(self, crawl: int) -> Counts:
        return await self._read(lambda tx: known_store.counts(tx, crawl))

    async def look(self, crawl: int, key: int) -> Known | None:
        return await self._read(lambda tx: known_store.look(tx, crawl, key))

    async def urls(
        self, crawl: int, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        found: list[Known] = []
        most, go_on = FIRST_LOOK, True
        while go_on and len(found) < limit:
            some, after = await self._piece(known_store.Wanted(crawl, state, host, limit - len(found)), after, most)
            found += some
            most, go_on = min(most * 5, MOST_LOOKED_AT), after is not None
        return found

    async def _piece(self, wanted: known_store.Wanted, after: int | None, most: int) -> tuple[list[Known], int | None]:
        return await self._read(lambda tx: known_store.piece(tx, wanted, after, most))

    async def hosts(self, crawl: int, after: str = "", limit: int = 100) -> list[KnownHost]:
        return await self._read(lambda tx: known_store.host_page(tx, crawl, after, limit))

    async def requeue(self, crawl: int, state: str) -> int:
        if state not in (FAILED, SKIPPED):
            raise Invalid("state", state, f"only addresses that are {FAILED} or {SKIPPED} can be put back in line")
        back = 0
        while some := await self._transact(
            lambda tx: known_store.requeue(tx, crawl, state, self._clock(), MOST_AT_ONCE)
        ):
            back += some
        return back

    async def forget(self, crawl: int) -> None:
        while await self._transact(lambda tx: known_store.forget(tx, crawl, MOST_AT_ONCE)):
            pass
        self._limits.pop(crawl, None)

    async def close(self) -> None:
        """The database is not its own to close."""

    async def _transact(self, work: Callable[[Transaction], T]) -> T:
        async with _told():
            return await self._db.transact(work)

    async def _read(self, work: Callable[[Transaction], T]) -> T:
        async with _told():
            return await self._db.read(work)


@asynccontextmanager
async def _told() -> AsyncIterator[None]:
    try:
        yield
    except DatabaseDown as problem:
        raise FrontierDown("in the database", problem) from problem
