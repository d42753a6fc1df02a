"""Code that was deployed just now, for workers to prepare before the first run asks for it."""

from __future__ import annotations

import time

from weft.clock import Clock, seconds
from weft.db.database import Transaction
from weft.projects import store
from weft.projects.model import Code

FRESH_SECONDS = 60.0
LOOK_SECONDS = 1.0
"""Many workers ask many times a second, and deploys are rare."""


class Fresh:
    """Remembers for a moment what it has found."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: tuple[Code, ...] = ()
        self._looked_at = float("-inf")

    def codes(self, tx: Transaction) -> tuple[Code, ...]:
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._found = tuple(store.deployed_since(tx, self._clock() - seconds(FRESH_SECONDS)))
            self._looked_at = time.monotonic()
        return self._found
