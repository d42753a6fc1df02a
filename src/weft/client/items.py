"""Items and datasets of a weft elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

import msgspec

from weft.client.connection import Connection
from weft.client.values import at
from weft.clock import iso
from weft.items.datasets import MOST_REVISIONS, NEWEST, NEWEST_REVISION, SAMPLE, DatasetCounts, RecordFilter, RecordPage
from weft.items.items import BEGIN, PAGE, Cursor, ItemPage
from weft.items.model import AttemptStats, Dataset, DatasetRecord, FieldFilter, Item, ItemQuery, RecordRevision
from weft.items.schemas import FieldSummary
from weft.operations.datasets import DatasetDocument, RecordDocument, RecordHistoryDocument
from weft.operations.items import AttemptStatsDocument, ItemDocument, ItemFieldsDocument, item_cursor
from weft.operations.paging import Page, decode_number, encode_cursor

MOST_A_PAGE = 500
RUNS = ("new_in_run", "changed_in_run", "unseen_in_run")


class RemoteItems:
    """What ``items.Items`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def rows(self, wanted: ItemQuery) -> AsyncIterator[Item]:
        """Every item that is wanted, in the order in which they came."""
        left, after = wanted.limit, BEGIN
        while left is None or left > 0:
            part = await self.page(wanted, after, limit=MOST_A_PAGE if left is None else left)
            for row in part.rows:
                yield row
            if part.next is None:
                return
            after, left = part.next, None if left is None else left - len(part.rows)

    async def page(self, wanted: ItemQuery, after: Cursor = BEGIN, *, limit: int = PAGE) -> ItemPage:
        """The next ``limit`` items at most, and at most 500."""
        if wanted.run_id is not None:
            path: tuple[object, ...] = ("runs", wanted.run_id, "items")
            query: dict[str, Any] = {"attempt": "all" if wanted.all_attempts else wanted.attempt}
        else:
            path, query = ("datasets", wanted.project, wanted.dataset, "items"), {"every": wanted.every}
        query |= _conditions(wanted.where) | {"limit": min(limit, MOST_A_PAGE)}
        query["after"] = None if after == BEGIN else encode_cursor(tuple(map(str, after)))
        found = await self._connection.get(Page[ItemDocument], *path, **query)
        rows = [_row(each) for each in found.items]
        return ItemPage(rows, None if found.next is None else item_cursor(found.next))

    async def stats(self, run_id: int) -> list[AttemptStats]:
        found = await self._connection.get(Page[AttemptStatsDocument], "runs", run_id, "stats")
        return [AttemptStats(**_fields(each)) for each in found.items]


class RemoteDatasets:
    """What ``datasets.Datasets`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self, projects: Collection[str] | None = None) -> list[Dataset]:
        found: list[DatasetDocument] = []
        for project in [None] if projects is None else sorted(projects):
            found += (await self._connection.get(Page[DatasetDocument], "datasets", project=project)).items
        return [_dataset(each) for each in found]

    async def get(self, project: str, name: str) -> Dataset:
        return _dataset(await self._connection.get(DatasetDocument, "datasets", project, name))

    async def counts(self, project: str, name: str) -> DatasetCounts:
        found = await self._connection.get(DatasetDocument, "datasets", project, name)
        return DatasetCounts(found.records or 0, found.items or 0)

    async def set(
        self, project: str, name: str, *, key_fields: Sequence[str] = (), schema: Mapping[str, Any] | None = None
    ) -> Dataset:
        body = {"key_fields": list(key_fields), "schema": schema}
        return _dataset(await self._connection.call("PUT", ("datasets", project, name), DatasetDocument, body=body))

    async def records(
        self, project: str, name: str, wanted: RecordFilter | None = None, *, below: int = NEWEST, limit: int = 50
    ) -> RecordPage:
        wanted = wanted or RecordFilter()
        query: dict[str, Any] = {each: getattr(wanted, each) for each in RUNS}
        times = ("first_seen_after", "first_seen_before", "last_seen_after", "last_seen_before")
        query |= {each: iso(getattr(wanted, each)) for each in times} | _conditions(wanted.where)
        query |= {"after": None if below == NEWEST else encode_cursor(below), "limit": min(limit, MOST_A_PAGE)}
        found = await self._connection.get(Page[RecordDocument], "datasets", project, name, "records", **query)
        return RecordPage([_record(each) for each in found.items], decode_number(found.next))

    async def record(
        self, project: str, name: str, record_id: int, *, below: int = NEWEST_REVISION, limit: int = MOST_REVISIONS
    ) -> tuple[DatasetRecord, list[RecordRevision]]:
        path = ("datasets", project, name, "records", record_id)
        found = await self._connection.get(RecordHistoryDocument, *path, below=below, limit=limit)
        return _record(found.record), [RecordRevision(**_fields(each)) for each in found.revisions]

    async def fields(self, project: str, name: str, *, sample: int = SAMPLE) -> FieldSummary:
        found = await self._connection.get(ItemFieldsDocument, "datasets", project, name, "fields", sample=sample)
        fields = {
            each.name: {"present": each.present, "filled": each.filled, "types": each.types} for each in found.fields
        }
        return FieldSummary(
            sampled=found.sampled,
            fields=fields,
            inferred=found.inferred,
            invalid=found.invalid,
            problems=found.problems,
        )


def _conditions(where: Sequence[FieldFilter]) -> dict[str, str]:
    by_name: dict[str, dict[str, str]] = {}
    told: dict[str, str] = {}
    for each in where:
        if each.field is None:
            told["search"] = each.value
            continue
        by_name.setdefault("contains" if each.part else "where", {})[each.field] = each.value
    return told | {name: msgspec.json.encode(fields).decode() for name, fields in by_name.items()}


def _row(document: ItemDocument) -> Item:
    return Item(**_without_problem(document))


def _dataset(document: DatasetDocument) -> Dataset:
    told = _fields(document)
    return Dataset(
        id=0,
        key_fields=tuple(told["key_fields"]),
        **{name: told[name] for name in ("project", "name", "schema", "created_at")},
    )


def _record(document: RecordDocument) -> DatasetRecord:
    return DatasetRecord(**_without_problem(document))


def _without_problem(document: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in _fields(document).items() if name != "problem"}


def _fields(document: msgspec.Struct) -> dict[str, Any]:
    """What a document says, with its times as moments."""
    told = {name: getattr(document, name) for name in document.__struct_fields__}
    return {name: at(value) if name == "at" or name.endswith("_at") else value for name, value in told.items()}
