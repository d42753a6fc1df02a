"""Workers of a weft elsewhere."""

from __future__ import annotations

from weft.client.connection import Connection
from weft.client.values import worker_of
from weft.operations.paging import Page
from weft.operations.workers import WorkerDocument
from weft.workers.workers import WorkerStatus


class RemoteWorkers:
    """What ``workers.Workers`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> list[WorkerStatus]:
        page = await self._connection.get(Page[WorkerDocument], "workers")
        return [worker_of(each) for each in page.items]

    async def get(self, name: str) -> WorkerStatus:
        return worker_of(await self._connection.get(WorkerDocument, "workers", name))

    async def drain(self, worker_id: int) -> WorkerStatus:
        return worker_of(await self._connection.post(WorkerDocument, "workers", worker_id, "drain"))
