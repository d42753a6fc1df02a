"""The front door to destinations: add one, list them with what waits, retry, remove."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from weft.access import store as access_store
from weft.access.audit import AuditedChange, record_changes
from weft.clock import Clock
from weft.db.database import Database, Transaction
from weft.errors import NotFound
from weft.items import destination_store as store
from weft.items.destination import Destination, check_secrets, checked_fields, checked_url, safe_join
from weft.items.exporters import ExportFormat, Row, export


@dataclass(frozen=True, slots=True)
class DestinationStatus:
    """A destination, and how many items wait for it."""

    destination: Destination
    waiting: int


class Destinations:
    """Every destination there is. Each belongs to a dataset."""

    def __init__(self, db: Database, clock: Clock, folder: str) -> None:
        self._db, self._clock, self._folder = db, clock, folder

    async def add(
        self,
        project: str,
        dataset: str,
        url: str,
        *,
        by: str,
        format: ExportFormat = ExportFormat.JSONL,
        fields: Sequence[str] = (),
    ) -> DestinationStatus:
        """Deliver every item of a dataset to an address: those that are there, and those that come."""
        values = {"url": checked_url(url), "format": format.value, "fields": checked_fields(fields, url)}
        if url.startswith("file:"):
            safe_join(self._folder, url)
        if format is ExportFormat.PARQUET:
            export(format, _nothing)  # tells what is missing
        at = self._clock()
        fresh = {"failures": 0, "next_at": at, "delivered": 0, "created_at": at, "created_by": by}

        def work(tx: Transaction) -> DestinationStatus:
            of = {"dataset_id": _dataset(tx, project, dataset)}
            check_secrets(url, project, {name for name, _, _ in access_store.list_secrets(tx, project)})
            added = store.add(tx, values | fresh | of)
            found = _existing(tx, project, dataset, added)
            record_changes(tx, [AuditedChange(target=f"destination {added}", after=_audited(found.destination))])
            return found

        return await self._db.transact(work)

    async def all(self, project: str, dataset: str) -> list[DestinationStatus]:
        def work(tx: Transaction) -> list[DestinationStatus]:
            found = store.of_dataset(tx, _dataset(tx, project, dataset))
            return [DestinationStatus(each, store.waiting(tx, each)) for each in found]

        return await self._db.read(work)

    async def get(self, project: str, dataset: str, destination_id: int) -> DestinationStatus:
        return await self._db.read(lambda tx: _existing(tx, project, dataset, destination_id))

    async def retry(self, project: str, dataset: str, destination_id: int) -> DestinationStatus:
        """Forget why the newest try failed, and deliver now."""

        def work(tx: Transaction) -> DestinationStatus:
            before = _existing(tx, project, dataset, destination_id).destination
            store.retry(tx, destination_id, self._clock())
            told = {"problem": before.problem, "failures": before.failures}
            record_changes(
                tx, [AuditedChange(target=f"destination {destination_id}", before=told, after=dict.fromkeys(told))]
            )
            return _existing(tx, project, dataset, destination_id)

        return await self._db.transact(work)

    async def remove(self, project: str, dataset: str, destination_id: int) -> None:
        """Deliver nothing there any more; what has arrived stays."""

        def work(tx: Transaction) -> None:
            before = _existing(tx, project, dataset, destination_id).destination
            store.remove(tx, destination_id)
            record_changes(tx, [AuditedChange(target=f"destination {destination_id}", before=_audited(before))])

        await self._db.transact(work)


async def _nothing() -> AsyncIterator[Row]:
    none: list[Row] = []
    for row in none:
        yield row


def _dataset(tx: Transaction, project: str, name: str) -> int:
    found = store.dataset_id(tx, project, name)
    if found is None:
        raise NotFound("dataset", f"{project}/{name}")
    return found


def _existing(tx: Transaction, project: str, dataset: str, destination_id: int) -> DestinationStatus:
    found = store.get(tx, destination_id)
    if found is None or (found.project, found.dataset) != (project, dataset):
        raise NotFound("destination", destination_id)
    return DestinationStatus(found, store.waiting(tx, found))


def _audited(destination: Destination) -> dict[str, Any]:
    """What the audit log is told of a destination; its secrets are only names."""
    return {"url": destination.url, "format": destination.format.value, "fields": list(destination.fields)}
