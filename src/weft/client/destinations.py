"""Destinations of a weft elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from weft.client.connection import Connection
from weft.client.values import at
from weft.items.destination import Destination
from weft.items.destinations import DestinationStatus
from weft.items.exporters import ExportFormat
from weft.operations.datasets import DestinationDocument
from weft.operations.paging import Page


class RemoteDestinations:
    """What ``destinations.Destinations`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def add(
        self,
        project: str,
        dataset: str,
        url: str,
        *,
        by: str = "",
        format: ExportFormat = ExportFormat.JSONL,
        fields: Sequence[str] = (),
    ) -> DestinationStatus:
        """Add a destination; who adds it, the gateway knows."""
        body = {"url": url, "format": format.value, "fields": list(fields)}
        return _progress(await self._connection.call("POST", _path(project, dataset), DestinationDocument, body=body))

    async def all(self, project: str, dataset: str) -> list[DestinationStatus]:
        page = await self._connection.get(Page[DestinationDocument], *_path(project, dataset))
        return [_progress(each) for each in page.items]

    async def get(self, project: str, dataset: str, destination_id: int) -> DestinationStatus:
        return _progress(await self._connection.get(DestinationDocument, *_path(project, dataset), destination_id))

    async def retry(self, project: str, dataset: str, destination_id: int) -> DestinationStatus:
        path = (*_path(project, dataset), destination_id, "retry")
        return _progress(await self._connection.call("POST", path, DestinationDocument))

    async def remove(self, project: str, dataset: str, destination_id: int) -> None:
        await self._connection.call("DELETE", (*_path(project, dataset), destination_id), None)


def _path(project: str, dataset: str) -> tuple[str, ...]:
    return ("datasets", project, dataset, "destinations")


def _progress(document: DestinationDocument) -> DestinationStatus:
    destination = Destination(
        id=document.id,
        dataset_id=0,  # its number is of no use elsewhere
        project=document.project,
        dataset=document.dataset,
        url=document.url,
        format=document.format,
        fields=tuple(document.fields),
        problem=document.problem,
        failures=document.failures,
        next_at=at(document.next_at) or 0,
        delivered=document.delivered,
        delivered_at=at(document.delivered_at),
        created_at=at(document.created_at) or 0,
        created_by=document.created_by,
    )
    return DestinationStatus(destination, document.waiting)
