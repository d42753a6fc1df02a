"""Finds workers that have gone silent and starts their runs elsewhere.

A lease does not depend on anybody's clock. A worker counts its heartbeats in its row; whoever watches measures with its
own monotonic clock how long that number has stood still. Stepping a wall clock steals no lease and prolongs none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from weft import events
from weft.clock import Clock
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.runs import lease_store
from weft.runs.leases import Leases
from weft.workers import store

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LastHeartbeat:
    """A worker's last known beat, and when it was first seen at that beat."""

    beats: int
    since: float


class Reaper:
    """Watches every worker; any number of reapers may do so at once."""

    def __init__(
        self,
        db: Database,
        leases: Leases,
        clock: Clock,
        *,
        lease_seconds: float = 15.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db, self._leases, self._clock = db, leases, clock
        self._lease_seconds, self._monotonic = lease_seconds, monotonic
        self._watched: dict[int, LastHeartbeat] = {}
        self._looked_at = float("-inf")

    async def tick(self) -> int:
        """Look at every worker once; return how many runs were taken from silent ones."""
        beats = await self._db.read(store.beats)
        silent = self._silent(beats)
        return sum([await self._take_from(worker_id) for worker_id in silent])

    def _silent(self, beats: dict[int, int]) -> list[int]:
        now = self._monotonic()
        if now - self._looked_at > self._lease_seconds / 2:
            # We were asleep ourselves (or the database was away): nobody can be blamed for a silence we did not hear.
            self._watched.clear()
        self._looked_at = now
        self._watched = {
            worker_id: seen
            if (seen := self._watched.get(worker_id)) is not None and seen.beats == count
            else LastHeartbeat(count, now)
            for worker_id, count in beats.items()
        }
        return [worker_id for worker_id, seen in self._watched.items() if now - seen.since >= self._lease_seconds]

    async def _take_from(self, worker_id: int) -> int:
        seen = self._watched.pop(worker_id)
        name = await self._db.transact(lambda tx: self._declare_lost(tx, worker_id, seen.beats))
        if name is None:
            return 0
        taken = await self._take_all(worker_id, name)
        log.warning("worker lost", extra={"worker": name, "runs": taken})
        return taken

    def _declare_lost(self, tx: Transaction, worker_id: int, beats: int) -> str | None:
        """Mark the worker offline unless it has beaten since; from here on its own heartbeat is refused."""
        name = store.declare_offline(tx, worker_id, beats)
        if name is not None:
            runs = len(lease_store.leases_of(tx, worker_id))
            data = {"worker": name, "worker_id": worker_id, "runs": runs}
            events.append(tx, [Fact("worker_lost", "", data=data)], self._clock())
        return name

    async def take_left_behind(self) -> int:
        """Take runs that are still on a worker that is already offline (a reaper died half-way)."""
        return sum([await self._take_all(*left) for left in await self._db.read(store.offline_with_leases)])

    async def _take_all(self, worker_id: int, name: str) -> int:
        taken = 0
        while count := await self._db.transact(
            lambda tx: self._leases.expire(tx, worker_id, f"worker {name} went silent")
        ):
            taken += count
        return taken
