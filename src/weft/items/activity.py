"""What has happened lately: how many runs ended and how many items came, minute by minute, and what is worth a look.

It is counted from the events, by this process, once somebody asks. What came since the last time is added; what was
before is read backwards, some of it at first and a piece now and then, until a day or ``MOST_READ`` is known; there,
items count when their run ended. So no question costs more than a moment, however much there is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from weft import events
from weft.clock import SECOND, Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.events import Event
from weft.items import activity_store
from weft.position import Position

NOTABLE = ("run_drifted", "ticks_missed", "worker_lost", "breaker_opened", "letter_kept")
"""Kinds of events that somebody should look at."""
MOST_NOTABLE = 100
PIECE = 5_000
"""How many events one look backwards reads."""
FIRST_PIECES = 10
LOOK_BACK_SECONDS = 0.5
"""How long it takes at least until the next piece is read."""
MOST_READ = 200_000
LATE = 1_000
"""Among how many of the newest ids some may be missing that are still to come."""
MOST_BEHIND = 50_000
"""Who is further behind begins anew."""
DAY = seconds(86_400)
HOUR_STEP, DAY_STEP = 60, 600
"""Seconds that are counted together."""
SPANS = {HOUR_STEP: 60, DAY_STEP: 144}
"""How many of each are kept."""
COUNTS = ("succeeded", "failed", "cancelled", "items")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Counts of one step after the other; the last step is not over yet."""

    begins_at: Moment
    step_seconds: int
    succeeded: list[int]
    failed: list[int]
    cancelled: list[int]
    items: list[int]


Cells = dict[int, dict[str, Counter[str]]]
"""What was counted in each step, by project."""


class Activity:
    """Counts what happens, for those who look at this process."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock, self._looking = db, clock, asyncio.Lock()
        self._begin()

    def _begin(self) -> None:
        self._position: Position | None = None
        self._cells: dict[int, Cells] = {step: {} for step in SPANS}
        self._notable: deque[Event] = deque(maxlen=MOST_NOTABLE)
        self._so_far: dict[int, int] = {}
        """Items of runs that have not ended, as far as they are counted."""
        self._low = self._read = 0
        self._looked_back_at = float("-inf")
        self.known_since: Moment = self._clock()

    async def catch_up(self) -> None:
        """Count what has happened since the last time, and a piece of what was before."""
        async with self._looking:
            if self._position is not None and not await self._db.read(self._forwards):
                self._begin()
            if self._position is None:
                position, self._so_far = await self._db.read(self._end)
                self._position, self._low, self.known_since = position, position.high + 1, self._clock()
                await self._look_back(FIRST_PIECES)
            elif time.monotonic() - self._looked_back_at >= LOOK_BACK_SECONDS:
                await self._look_back(1)
            self._forget()

    async def _look_back(self, pieces: int) -> None:
        for _ in range(pieces):
            if self._low > 1 and self._read < MOST_READ and self.known_since > self._clock() - DAY:
                await self._db.read(self._backwards)
        self._looked_back_at = time.monotonic()

    def series(self, step: int, projects: Collection[str] | None = None) -> Series:
        """The counts of all steps that are kept, of all projects or of some."""
        last = self._clock() // SECOND // step
        first = last - SPANS[step] + 1
        counted: dict[str, list[int]] = {name: [0] * SPANS[step] for name in COUNTS}
        for place, by_project in self._cells[step].items():
            if not first <= place <= last:
                continue
            for project, counts in by_project.items():
                if projects is None or project in projects:
                    for name, count in counts.items():
                        counted[name][place - first] += count
        return Series(begins_at=first * step * SECOND, step_seconds=step, **counted)

    def notable(self, projects: Collection[str] | None = None) -> list[Event]:
        """What is worth a look, newest first."""
        since = self._clock() - DAY
        seen = (each for each in reversed(self._notable) if each.at >= since)
        return [each for each in seen if projects is None or each.project in projects]

    def _end(self, tx: Transaction) -> tuple[Position, dict[int, int]]:
        return Position.at_end(events.newest_ids(tx, LATE), self._clock()), activity_store.running(tx)

    def _forwards(self, tx: Transaction) -> bool:
        """Count what is new; False where that is too much."""
        position = self._position
        if position is None or events.last_id(tx) - position.high > MOST_BEHIND:
            return False
        now = self._clock()
        while found := events.beyond(tx, position.high, position.missing, PIECE):
            fresh = [event for event in found if position.take(event.id, event.at, now)]
            self._count_on(fresh, activity_store.items(tx, _ended(fresh)))
            if not fresh:
                break
        position.give_up(now)
        return True

    def _count_on(self, told: Iterable[Event], items: dict[int, int]) -> None:
        for event in told:
            run_id, before = event.run_id or 0, self._so_far.get(event.run_id or 0)
            if event.kind == "run_started":
                self._so_far[run_id] = 0
            elif event.kind == "items_collected":
                self._so_far[run_id] = count = int(event.data["items"])
                self._add(event.at, event.project, "items", count - (count if before is None else before))
            elif event.kind == "run_finished":
                self._add(event.at, event.project, str(event.data.get("state")), 1)
                if self._so_far.pop(run_id, None) is not None:
                    self._add(event.at, event.project, "items", items.get(run_id, 0) - (before or 0))
            elif event.kind in NOTABLE:
                self._notable.append(event)

    def _backwards(self, tx: Transaction) -> None:
        """Count a piece of what was before."""
        below, self._low = self._low, max(1, self._low - PIECE)
        self._read += below - self._low
        step = seconds(HOUR_STEP)
        for project, place, state, count, items in activity_store.ended(tx, step, self._low, below):
            self._add(int(place) * step, project, state, int(count))
            self._add(int(place) * step, project, "items", int(items or 0))
        for row in activity_store.told(tx, NOTABLE, self._low, below):
            if len(self._notable) < MOST_NOTABLE:
                self._notable.appendleft(_event(row))
        first = activity_store.first_at(tx, self._low) or self.known_since
        self.known_since = min(self.known_since, first if self._low > 1 else self._clock() - DAY)

    def _add(self, at: Moment, project: str, name: str, count: int) -> None:
        for step, cells in self._cells.items():
            if count > 0 and name in COUNTS:
                cells.setdefault(at // SECOND // step, {}).setdefault(project, Counter())[name] += count

    def _forget(self) -> None:
        """Drop what is too old to be shown."""
        for step, cells in self._cells.items():
            oldest = self._clock() // SECOND // step - SPANS[step]
            for place in [place for place in cells if place < oldest]:
                del cells[place]


def _ended(told: Iterable[Event]) -> list[int]:
    return [event.run_id for event in told if event.kind == "run_finished" and event.run_id is not None]


def _event(row: Any) -> Event:
    return Event(**{**row._mapping, "data": msgspec.json.decode(row.data) if row.data else {}})
