"""How much more of each attempt's live log is kept. Workers cap what a run prints; who has taken over one need not.

The room is asked for when an attempt is first heard of here, and counted from then on: a piece costs no question.
Each gateway counts for itself, so that what a forger can fill is bounded by their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from weft.db.database import Transaction
from weft.runs import lease_store

ALLOWANCE = 1_000
"""Bytes past a run's ``log_bytes``, for a line that says what was dropped."""

MOST_LIVE = 15_000_000
"""Bytes of a live log that the database keeps; of a longer one the rest is seen when its attempt has ended."""

MOST_ATTEMPTS = 10_000
"""How many are counted; of more than that, the oldest are asked for again."""

Attempt = tuple[int, int]
"""A run and its attempt."""


class LogRoom:
    """The bytes that there is room for, by attempt."""

    def __init__(self) -> None:
        self._left: dict[Attempt, int] = {}

    def of(self, tx: Transaction, attempts: Collection[Attempt]) -> dict[Attempt, int]:
        """The room of ``attempts`` that are held now."""
        unknown = [attempt for attempt in attempts if attempt not in self._left]
        found = lease_store.log_sizes(tx, [run_id for run_id, _ in unknown]) if unknown else {}
        asked = {attempt: min(most, MOST_LIVE) + ALLOWANCE - kept for attempt, (most, kept) in found.items()}
        room = {attempt: self._left.get(attempt, asked.get(attempt, 0)) for attempt in attempts}
        tx.after_commit(lambda: self._remember(asked))
        return room

    def take(self, tx: Transaction, kept: Counter[Attempt]) -> None:
        """Count what was kept, once it is durable."""
        tx.after_commit(lambda: self._take(kept))

    def _remember(self, asked: dict[Attempt, int]) -> None:
        for attempt, room in asked.items():
            self._left.setdefault(attempt, room)
        while len(self._left) > MOST_ATTEMPTS:
            del self._left[next(iter(self._left))]

    def _take(self, kept: Counter[Attempt]) -> None:
        for attempt, size in kept.items():
            if attempt in self._left:
                self._left[attempt] -= size
