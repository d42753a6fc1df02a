"""What the newest attempt of each of many runs has counted, read at once."""

from __future__ import annotations

from collections.abc import Iterable

from weft.db.database import Database, Transaction
from weft.items import store
from weft.items.model import AttemptStats


async def newest_stats(db: Database, run_ids: Iterable[int]) -> dict[int, AttemptStats]:
    """By run; one that has told nothing yet is not among them."""

    def work(tx: Transaction) -> dict[int, AttemptStats]:
        found = ((run_id, store.stats_of(tx, run_id)) for run_id in run_ids)
        return {run_id: told[-1] for run_id, told in found if told}

    return await db.read(work)
