"""Retention: removes items, statistics, logs and records that projects keep for some days only, a little at a time.

Of a run that ended long enough ago go its items, its statistics and its logs, and in the end the rows that name them,
so that whoever continues after a process that died finds the run again. Then go the records that no item that is kept
can be of.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Protocol

from weft.clock import Clock, Moment, seconds
from weft.db.database import Database
from weft.items import retention_store as store
from weft.items.retention_store import RetentionEdge
from weft.logs.storage import delete_log
from weft.ports import Blobs

log = logging.getLogger(__name__)

AT_ONCE = 1_000
"""How many rows one transaction looks at or removes."""

DAY_SECONDS = 24 * 3600.0
MARGIN_SECONDS = 3600.0
"""How much clocks of workers may differ: a record is removed this much later."""


class RetentionLeader(Protocol):
    """Who knows whether this process does the work."""

    async def leads(self) -> bool: ...


class RetentionSweeper:
    def __init__(self, db: Database, blobs: Blobs, leader: RetentionLeader, clock: Clock) -> None:
        self._db, self._blobs, self._leader, self._clock = db, blobs, leader, clock

    async def tick(self) -> int:
        """Remove all that is too old; return how many rows and logs that were."""
        keep_days = await self._db.read(store.keep_days)
        if not keep_days or not await self._leader.leads():
            return 0
        removed: Counter[str] = Counter()
        for project, days in keep_days.items():
            removed += await self._sweep(project, self._clock() - seconds(days * DAY_SECONDS))
        return removed.total()

    async def _sweep(self, project: str, cutoff: Moment) -> Counter[str]:
        removed = await self._sweep_runs(project, cutoff)
        for dataset_id in await self._db.read(lambda tx: store.dataset_ids(tx, project)):
            removed += await self._sweep_records(dataset_id, cutoff - seconds(MARGIN_SECONDS))
        if removed:
            log.info("old items removed", extra={"project": project, **removed})
        return removed

    async def _sweep_runs(self, project: str, cutoff: Moment) -> Counter[str]:
        """A run that was queued after the cutoff has not ended before it, nor has any after that one."""
        removed: Counter[str] = Counter()
        after = 0
        while page := await self._runs_after(project, after):
            full = await self._full(page)
            for run in page:
                if run.queued_at >= cutoff:
                    return removed
                if run.ended and run.id in full and run.finished_at is not None and run.finished_at < cutoff:
                    removed += await self._empty(run.id)
            after = page[-1].id
        return removed

    async def _runs_after(self, project: str, after: int) -> list[Any]:
        return await self._db.read(lambda tx: store.runs_after(tx, project, after, AT_ONCE))

    async def _full(self, page: list[Any]) -> set[int]:
        return await self._db.read(lambda tx: store.runs_with_data(tx, page))

    async def _empty(self, run_id: int) -> Counter[str]:
        removed = Counter({"runs": 1})
        yielded = await self._db.read(lambda tx: store.attempts_of(tx, run_id))
        for attempt, next_seq in yielded:
            for first in range(1, next_seq, AT_ONCE):
                removed["items"] += await self._remove_items(run_id, attempt, first)
        for key in await self._db.read(lambda tx: store.log_keys(tx, run_id)):
            await delete_log(self._blobs, key)
            removed["logs"] += 1
        await self._db.transact(lambda tx: store.clear_run(tx, run_id, yielded))
        return removed

    async def _remove_items(self, run_id: int, attempt: int, first: int) -> int:
        last = first + AT_ONCE - 1
        return await self._db.transact(lambda tx: store.remove_items(tx, run_id, attempt, first, last))

    async def _sweep_records(self, dataset_id: int, cutoff: Moment) -> Counter[str]:
        removed: Counter[str] = Counter()
        before = await self._db.read(lambda tx: store.edge(tx, dataset_id, cutoff))
        after = 0
        while page := await self._things_after(dataset_id, after, before):
            old = [row.id for row in page if row.old]
            changed = [row.id for row in page if not row.old and row.revisions > 1]
            removed["records"] += await self._remove_records(old, before) if old else 0
            removed["revisions"] += await self._remove_revisions(changed, before) if changed else 0
            after = page[-1].id
        return +removed

    async def _things_after(self, dataset_id: int, after: int, before: RetentionEdge) -> list[Any]:
        return await self._db.read(lambda tx: store.records_after(tx, dataset_id, after, before, AT_ONCE))

    async def _remove_records(self, ids: list[int], before: RetentionEdge) -> int:
        return await self._db.transact(lambda tx: store.remove_records(tx, ids, before))

    async def _remove_revisions(self, ids: list[int], before: RetentionEdge) -> int:
        return await self._db.transact(lambda tx: store.remove_revisions(tx, ids, before))
