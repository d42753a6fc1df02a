"""A frontier that refuses crawls whose URLs are in another frontier: it would know nothing of them, and say zero."""

from __future__ import annotations

import time

from msgspec.structs import replace

from weft.clock import Clock, Moment
from weft.crawler.steady_clock import shifted_reply, shifted_turn
from weft.crawls import host_store, store
from weft.db.database import Database
from weft.errors import FrontierElsewhere
from weft.ports import Counts, Frontier, Known, KnownHost, Limits, Turn, Turned

MOST_REMEMBERED = 10_000
LOOK_SECONDS = 1.0


class FrontierClock:
    """The clock of a frontier that is not in the database.

    Waits there cannot be ended earlier where the machine's clock is set back, so this one goes on: from then on it is
    ahead by as much, in all processes.
    """

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._looked_at = float("-inf")
        self.ahead: Moment = 0

    def __call__(self) -> Moment:
        return self._clock() + self.ahead

    async def look(self) -> Moment:
        """By how much it is ahead now, as far as was known a moment ago."""
        if (at := time.monotonic()) - self._looked_at >= LOOK_SECONDS:
            found = await self._db.glance(host_store.clock_ahead)
            if found is None:
                await self._db.transact(host_store.begin_clock_ahead)
            self._looked_at, self.ahead = at, found or 0
        return self.ahead


class CheckedFrontier:
    """Looks once for each crawl where its row says that its URLs are. Moments are told on the clock of this machine."""

    def __init__(self, frontier: Frontier, place: str, db: Database, clock: FrontierClock | None = None) -> None:
        self._frontier, self._place, self._db, self._clock = frontier, place, db, clock
        self._checked: set[int] = set()

    async def _ahead(self) -> Moment:
        return await self._clock.look() if self._clock is not None else 0

    async def _check(self, crawl: int) -> None:
        if crawl in self._checked:
            return
        kept_in = await self._db.glance(lambda tx: store.frontier_of(tx, crawl))
        if kept_in is not None and kept_in != self._place:
            raise FrontierElsewhere(crawl, kept_in, self._place)
        if len(self._checked) >= MOST_REMEMBERED:
            self._checked.clear()
        self._checked.add(crawl)

    async def open(self, crawl: int, limits: Limits) -> None:
        await self._check(crawl)
        await self._frontier.open(crawl, limits)

    async def turn(self, crawl: int, holder: str, turn: Turn) -> Turned:
        await self._check(crawl)
        by = await self._ahead()
        return shifted_reply(await self._frontier.turn(crawl, holder, shifted_turn(turn, by)), -by)

    async def counts(self, crawl: int) -> Counts:
        await self._check(crawl)
        return await self._frontier.counts(crawl)

    async def look(self, crawl: int, key: int) -> Known | None:
        await self._check(crawl)
        found, by = await self._frontier.look(crawl, key), await self._ahead()
        return None if found is None else _known(found, by)

    async def urls(
        self, crawl: int, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        await self._check(crawl)
        by = await self._ahead()
        return [_known(each, by) for each in await self._frontier.urls(crawl, state, host, after, limit)]

    async def hosts(self, crawl: int, after: str = "", limit: int = 100) -> list[KnownHost]:
        await self._check(crawl)
        by, found = await self._ahead(), await self._frontier.hosts(crawl, after, limit)
        return [_known_host(each, by) for each in found] if by else found

    async def requeue(self, crawl: int, state: str) -> int:
        await self._check(crawl)
        return await self._frontier.requeue(crawl, state)

    async def forget(self, crawl: int) -> None:
        await self._check(crawl)
        await self._frontier.forget(crawl)

    async def close(self) -> None:
        await self._frontier.close()


def _known(each: Known, by: Moment) -> Known:
    return replace(each, **_moments(each, by, "next_at", "fetched_at")) if by else each


def _known_host(each: KnownHost, by: Moment) -> KnownHost:
    from weft.crawler.politeness import shifted_state  # seldom needed

    moments = _moments(each, by, "next_at", "leased_until")
    return replace(each, state=shifted_state(each.state, -by), **moments)


def _moments(each: Known | KnownHost, by: Moment, *names: str) -> dict[str, Moment]:
    """Moments of a frontier whose clock is ahead on ours; 0 is none."""
    return {name: at - by for name in names if (at := getattr(each, name))}
