"""Stores what attempts yield, each item once."""

from __future__ import annotations

from collections.abc import Sequence

from weft.clock import Clock
from weft.db.database import Database
from weft.items.model import Harvest


class Collector:
    """Any number of them may work at once: an attempt's items are numbered, and one transaction takes a batch."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def collect(self, worker_id: int, worker: str, harvests: Sequence[Harvest]) -> list[int]:
        """Store the items of attempts that ``worker_id`` holds, or that a worker called ``worker`` held before.

        The answer for each is the number of the item that is waited for next; 0 where the attempt was never its own.
        """
        return [0 for _ in harvests]
