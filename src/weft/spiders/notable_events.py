"""The newest events that people should see, such as drift, missed ticks and lost workers.

They are read from the events, by this process, once somebody asks. What came since the last time is added; what was
before is read backwards, some of it at first and a piece now and then, until a day or ``MOST_READ`` is known. So no
question costs more than a moment, however much there is.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection
from typing import Any

import msgspec

from weft import events
from weft.clock import Clock, seconds
from weft.cursor import Cursor
from weft.db.database import Database, Transaction
from weft.events import Event
from weft.spiders import store

NOTABLE_KINDS = ("run_drifted", "ticks_missed", "worker_lost", "breaker_opened", "dead_letter_kept")
"""Kinds of events that somebody should look at."""
MOST_NOTABLE = 100
PIECE = 5_000
"""How many events one look backwards reads."""
FIRST_PIECES = 10
LOOK_BACK_SECONDS = 0.5
"""How long it takes at least until the next piece is read."""
MOST_READ = 200_000
LATE_IDS = 1_000
"""Among how many of the newest ids some may be missing that are still to come."""
MOST_BEHIND = 50_000
"""Who is further behind begins anew."""
DAY = seconds(86_400)


class NotableEvents:
    """Remembers what is worth a look, for those who look at this process."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock, self._looking = db, clock, asyncio.Lock()
        self._begin()

    def _begin(self) -> None:
        self._position: Cursor | None = None
        self._notable: deque[Event] = deque(maxlen=MOST_NOTABLE)
        self._low = self._read = 0
        self._looked_back_at = float("-inf")
        self._known_since = self._clock()

    async def catch_up(self) -> None:
        """Read what has happened since the last time, and a piece of what was before."""
        async with self._looking:
            if self._position is not None and not await self._db.read(self._forwards):
                self._begin()
            if self._position is None:
                self._position = position = await self._db.read(self._end)
                self._low, self._known_since = position.high + 1, self._clock()
                await self._look_back(FIRST_PIECES)
            elif time.monotonic() - self._looked_back_at >= LOOK_BACK_SECONDS:
                await self._look_back(1)

    async def _look_back(self, pieces: int) -> None:
        for _ in range(pieces):
            if self._low > 1 and self._read < MOST_READ and self._known_since > self._clock() - DAY:
                await self._db.read(self._backwards)
        self._looked_back_at = time.monotonic()

    def notable(self, projects: Collection[str] | None = None) -> list[Event]:
        """What is worth a look, newest first."""
        since = self._clock() - DAY
        seen = (each for each in reversed(self._notable) if each.at >= since)
        return [each for each in seen if projects is None or each.project in projects]

    def _end(self, tx: Transaction) -> Cursor:
        return Cursor.at_end(events.newest_ids(tx, LATE_IDS), self._clock())

    def _forwards(self, tx: Transaction) -> bool:
        """Read what is new; False where that is too much."""
        position = self._position
        if position is None or events.last_id(tx) - position.high > MOST_BEHIND:
            return False
        now = self._clock()
        while found := events.beyond(tx, position.high, position.missing, PIECE):
            fresh = [event for event in found if position.take(event.id, event.at, now)]
            self._notable.extend(event for event in fresh if event.kind in NOTABLE_KINDS)
            if not fresh:
                break
        position.give_up(now)
        return True

    def _backwards(self, tx: Transaction) -> None:
        """Read a piece of what was before."""
        below, self._low = self._low, max(1, self._low - PIECE)
        self._read += below - self._low
        for row in store.events_of_kinds(tx, NOTABLE_KINDS, self._low, below):
            if len(self._notable) < MOST_NOTABLE:
                self._notable.appendleft(_event(row))
        first = store.first_event_at(tx, self._low) or self._known_since
        self._known_since = min(self._known_since, first if self._low > 1 else self._clock() - DAY)


def _event(row: Any) -> Event:
    return Event(**{**row._mapping, "data": msgspec.json.decode(row.data) if row.data else {}})
