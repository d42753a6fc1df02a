"""Reports that cannot be delivered do not keep a worker from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from weft.errors import DatabaseDown
from weft.runs.model import Ending
from weft.workers.direct import DirectProtocol
from weft.workers.reports import EndingReports


class Away(DirectProtocol):
    """A protocol whose database is away for good."""

    def __init__(self) -> None:
        pass

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        raise DatabaseDown("connection refused")


async def drained(hurried: asyncio.Event, patience_seconds: float) -> int:
    reports = EndingReports(Away(), lambda: None)
    reports.add(Ending(run_id=1, attempt=1, outcome="succeeded"))
    telling = asyncio.create_task(reports.run_forever())
    async with asyncio.timeout(20):
        await reports.drain(hurried, patience_seconds)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    return reports.backlog


async def test_a_database_that_stays_away_is_not_waited_for_for_ever() -> None:
    assert await drained(asyncio.Event(), 0.05) == 1


async def test_somebody_in_a_hurry_is_not_kept_waiting() -> None:
    hurried = asyncio.Event()
    asyncio.get_running_loop().call_soon(hurried.set)
    assert await drained(hurried, 3600) == 1
