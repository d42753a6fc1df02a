"""The front door to workers: who is there and how they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.access.audit import record_change
from weft.clock import Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.errors import Conflict, NotFound
from weft.workers import store

SHOW_OFFLINE_SECONDS = 3600.0
"""How long a worker that has left is still listed."""
LATELY = 5_000
"""Among how many of the newest runs those of one worker are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A worker as people and programs see it."""

    id: int
    name: str
    host: str
    pid: int
    version: str
    labels: tuple[str, ...]
    capacity: int
    running: int
    done: int
    state: str
    started_at: Moment
    seen_at: Moment
    stats: Mapping[str, Any]

    @property
    def problem(self) -> str | None:
        """Why it can execute nothing now, where that is so."""
        told = self.stats.get("problem")
        return str(told)[:500] if self.state == "unhealthy" and told else None

    def silent_seconds(self, now: Moment) -> float:
        return max(0.0, (now - self.seen_at) / 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRun:
    """A run that a worker has, or had last."""

    id: int
    project: str
    task: str
    kind: str
    state: str
    attempt: int
    started_at: Moment | None
    finished_at: Moment | None
    outcome: str | None
    reason: str | None


class Workers:
    """Every worker that is there, and those that left not long ago."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def all(self) -> list[WorkerStatus]:
        since = self._clock() - seconds(SHOW_OFFLINE_SECONDS)
        return [_info(row) for row in await self._db.read(lambda tx: store.all_workers(tx, offline_since=since))]

    async def get(self, name: str) -> WorkerStatus:
        """The newest worker of that name."""
        found = [worker for worker in await self.all() if worker.name == name or str(worker.id) == name]
        if not found:
            raise NotFound("worker", name)
        return max(found, key=lambda worker: worker.id)

    async def runs(self, worker: WorkerStatus, limit: int = 50) -> list[WorkerRun]:
        """What a worker runs now, then what it has run lately: among the newest runs, so that it costs little."""

        def look(tx: Transaction) -> list[Any]:
            current = store.current_runs(tx, worker.id, limit)
            return current + store.recent_runs(tx, worker.name, LATELY, limit - len(current))

        return [WorkerRun(**row._mapping) for row in await self._db.read(look)]

    async def drain(self, worker_id: int) -> WorkerStatus:
        """Ask a worker to lease nothing more and to leave once its runs have ended; it hears of it at its next beat."""

        def work(tx: Transaction) -> WorkerStatus:
            before = store.entered(tx, worker_id)
            if before is None:
                raise NotFound("worker", worker_id)
            if not store.drain(tx, worker_id):
                raise Conflict(f"worker {before.name} has left already")
            record_change(tx, before={"state": before.state}, after={"state": store.DRAINING})
            return _info(store.entered(tx, worker_id))

        return await self._db.transact(work)

    async def forget_offline(self, older_than_seconds: float = 7 * 86_400.0) -> int:
        """Drop workers from the registry that left long ago."""
        since = self._clock() - seconds(older_than_seconds)
        return await self._db.transact(lambda tx: store.forget(tx, since))


def _info(row: Any) -> WorkerStatus:
    fields = {name: getattr(row, name) for name in WorkerStatus.__dataclass_fields__ if name not in ("labels", "stats")}
    return WorkerStatus(**fields, labels=tuple(msgspec.json.decode(row.labels)), stats=msgspec.json.decode(row.stats))
