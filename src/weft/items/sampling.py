"""Notes now and then how far attempts are, so that their pages can draw curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.clock import SECOND, Moment
from weft.db.database import Transaction
from weft.items import sample_store as store
from weft.items.collect_store import Place
from weft.items.tally import Tally

SOONEST: Moment = 5 * SECOND
"""How long it takes until the next sample of an attempt, at least."""
MOST = 300
"""Of an attempt with so many samples every second one is removed."""
WANTED = MOST // 2
"""Into how many parts the time of a long attempt is divided."""
MOST_REMEMBERED = 10_000


class Sampler:
    """Any number of them may work at once: the statistics of an attempt are locked while one of them does."""

    def __init__(self) -> None:
        self._due: dict[Place, Moment] = {}

    def note(self, tx: Transaction, tallies: Mapping[Place, Tally], told: Mapping[Place, Any], at: Moment) -> None:
        """Note how far those attempts are that have just told of themselves and were not looked at for a while."""
        due = [place for place in told if place in tallies and self._due.get(place, 0) <= at]
        if not due:
            return
        taken = store.taken(tx, due)
        noted = [place for place in due if place not in taken or next_at(*taken[place]) <= at]
        store.add(tx, [_row(tallies[place], told[place], at) for place in noted])
        for place in noted:
            if place in taken and taken[place][0] + 1 >= MOST:
                store.thin(tx, place)
        tx.after_commit(lambda: self._remember(dict.fromkeys(due, at + SOONEST)))

    def _remember(self, due: dict[Place, Moment]) -> None:
        self._due |= due
        while len(self._due) > MOST_REMEMBERED:
            del self._due[next(iter(self._due))]


def next_at(count: int, first: Moment, last: Moment) -> Moment:
    """When the next sample of an attempt is due: the longer it runs, the later."""
    return last + max(SOONEST, (last - first) // WANTED)


def _row(tally: Tally, stats: dict[str, Any], at: Moment) -> dict[str, Any]:
    sample = store.sample_of(stats, tally.items, at)
    counts = {"items": sample.items, "requests": sample.requests, "errors": sample.errors, "memory": sample.memory}
    return {"run_id": tally.run_id, "attempt": tally.attempt, "at": at} | counts
