"""How far runs are: what they have yielded, and how fast of late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from weft.clock import SECOND
from weft.db.database import Database, Transaction
from weft.items import pace_store, store

POINTS = 20
"""How many points the curve of a run in a list has."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """What a run has yielded, and how many items came each minute between its last samples."""

    items: int
    rates: tuple[int, ...] = ()


class Pace:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def of(self, run_ids: Sequence[int]) -> dict[int, Yielded]:
        """Of each run that yields items; the rates only of those that run."""
        return await self._db.read(lambda tx: _pace(tx, run_ids))


def _pace(tx: Transaction, run_ids: Sequence[int]) -> dict[int, Yielded]:
    found: dict[int, Yielded] = {}
    for run_id, attempts in pace_store.attempts(tx, run_ids).items():
        last = max(attempts)
        whole = store.whole_attempts(tx, run_id) if len(attempts) > 1 else {last}
        items = sum(count for attempt, (count, _) in attempts.items() if attempt in whole)
        found[run_id] = Yielded(items, _rates(tx, run_id, last) if attempts[last][1] else ())
    return found


def _rates(tx: Transaction, run_id: int, attempt: int) -> tuple[int, ...]:
    """Items a minute, from one sample to the next."""
    samples = pace_store.samples(tx, run_id, attempt, POINTS + 1)
    return tuple(
        max(0, round((items - before) * 60 * SECOND / max(at - since, 1)))
        for (since, before), (at, items) in pairwise(samples)
    )
