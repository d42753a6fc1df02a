"""What can be seen of an overloaded weft from outside: the gateway's memory, the queues, and how long runs wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import func, select

from weft.app import App
from weft.clock import SECOND, Moment
from weft.db import schema
from weft.db.database import Transaction

LOOK_SECONDS = 0.25
PAGE_BYTES = 4096


@dataclass(slots=True)
class Vitals:
    """What was seen while it went on."""

    memory: list[int] = field(default_factory=list)
    """Of the gateway, in bytes, look by look."""
    queued: Counter[str] = field(default_factory=Counter)
    """The most runs that waited at once, for each project."""

    @asynccontextmanager
    async def watching(self, app: App, pid: int) -> AsyncIterator[None]:
        """Look at a process and at the queues again and again."""

        async def look_forever() -> None:
            while True:
                self.memory.append(resident(pid))
                self.queued |= Counter(await app.db.read(waiting))
                await asyncio.sleep(LOOK_SECONDS)

        looking = asyncio.create_task(look_forever())
        try:
            yield
        finally:
            looking.cancel()

    @property
    def grown_late(self) -> int:
        """By how much the process grew in the last third, beyond what it ever had in the second."""
        third = len(self.memory) // 3
        return max(self.memory[-third:]) - max(self.memory[third : 2 * third])


def resident(pid: int) -> int:
    """The memory that a process has, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def waiting(tx: Transaction) -> dict[str, int]:
    """How many runs of each project wait."""
    runs = schema.runs
    query = select(runs.c.project, func.count()).where(runs.c.ready_lane.is_not(None)).group_by(runs.c.project)
    return {row[0]: row[1] for row in tx.rows(query)}


def waits(tx: Transaction, projects: Iterable[str], since: Moment, until: Moment) -> list[float]:
    """How many seconds the runs that were accepted between two moments have waited for their start."""
    runs = schema.runs
    query = select(runs.c.queued_at, runs.c.started_at).where(
        runs.c.project.in_(list(projects)), runs.c.queued_at.between(since, until), runs.c.started_at.is_not(None)
    )
    return [(row.started_at - row.queued_at) / SECOND for row in tx.rows(query)]
