"""List and configure datasets, their records and revisions, and the destinations to which they are delivered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from weft.access.model import Role
from weft.clock import iso, moment
from weft.items.datasets import MOST_REVISIONS, NEWEST, NEWEST_REVISION, DatasetCounts, RecordFilter
from weft.items.destinations import DestinationStatus
from weft.items.exporters import ExportFormat
from weft.items.model import Dataset, DatasetAttempt, DatasetRecord, ItemQuery, RecordRevision
from weft.items.schemas import problem_of
from weft.operations.items import (
    FIELDS_EXAMPLE,
    ITEM_EXAMPLE,
    ContainsFilter,
    ItemDocument,
    ItemFieldsDocument,
    SampleSize,
    SearchFilter,
    WhereFilter,
    fields_document,
    item_conditions,
    item_cursor,
    item_page,
    with_time,
)
from weft.operations.operation import Call, Operations, Time, timed
from weft.operations.paging import Limit, Page, PageCursor, decode_names, decode_number, decode_numbers, encode_cursor


class DatasetRunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt brought to its dataset."""

    run_id: int
    attempt: int
    state: str | None
    """Of the run; null where the run is gone."""
    items: int
    new_records: int
    changed_records: int
    refused: int
    invalid: int
    drift: list[str]
    """What differs from the runs before it, a sentence each."""
    at: Time
    """When it last brought anything."""


class DatasetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Where the items of a spider are kept, whatever run has yielded them."""

    project: str
    name: str
    key_fields: list[str]
    """Which fields say which record an item belongs to; none: all of them."""
    schema: dict[str, Any] | None
    created_at: Time
    records: int | None = None
    """How many; null where that was not counted to the end."""
    items: int | None = None
    at_least: int | None = None
    """How many records were counted, where that was not to the end."""
    newest: DatasetRunDocument | None = None
    """What came last, where that was asked for."""


class RevisionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a record looked like from one item on."""

    number: int
    at: Time
    run_id: int
    attempt: int
    seq: int
    data: dict[str, Any]


class RecordDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What items are seen of, as it looked last."""

    id: int
    key: str
    revisions: int
    """How many it had."""
    seen: int
    """How many items it was seen in."""
    first_seen_at: Time
    last_seen_at: Time
    last_run_id: int
    data: dict[str, Any]
    problem: str | None = None
    """What about it is not as the dataset's schema says."""


class RecordHistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A record and how it looked, newest first."""

    record: RecordDocument
    revisions: list[RevisionDocument]


def revision_document(revision: RecordRevision) -> RevisionDocument:
    document: RevisionDocument = with_time(RevisionDocument, revision)
    return document


def dataset_run_document(harvest: DatasetAttempt) -> DatasetRunDocument:
    document: DatasetRunDocument = with_time(DatasetRunDocument, harvest)
    return document


def dataset_document(
    dataset: Dataset, counts: DatasetCounts | None = None, newest: DatasetAttempt | None = None
) -> DatasetDocument:
    return DatasetDocument(
        project=dataset.project,
        name=dataset.name,
        key_fields=list(dataset.key_fields),
        schema=None if dataset.schema is None else dict(dataset.schema),
        created_at=iso(dataset.created_at) or "",
        records=None if counts is None else counts.records,
        items=None if counts is None else counts.items,
        at_least=None if counts is None else counts.at_least,
        newest=None if newest is None else dataset_run_document(newest),
    )


def record_document(record: DatasetRecord, schema: Mapping[str, Any] | None = None) -> RecordDocument:
    told = timed({name: getattr(record, name) for name in RecordDocument.__struct_fields__ if name != "problem"})
    return RecordDocument(**told, problem=None if schema is None else problem_of(record.data, schema))


def record_history_document(
    record: DatasetRecord, revisions: list[RecordRevision], schema: Mapping[str, Any] | None = None
) -> RecordHistoryDocument:
    return RecordHistoryDocument(
        record=record_document(record, schema), revisions=[revision_document(each) for each in revisions]
    )


class DestinationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A destination and how it goes."""

    id: int
    project: str
    dataset: str
    url: str
    format: ExportFormat
    fields: list[str]
    state: str
    """``active``, or ``failing`` where the newest try failed."""
    problem: str | None
    failures: int
    next_at: str | None
    """When it is tried again, where it fails."""
    delivered: int
    """Items that have arrived."""
    waiting: int
    """Items that are still to be sent, of the newest 1,000 attempts."""
    delivered_at: str | None
    created_at: str | None
    created_by: str


def destination_document(progress: DestinationStatus) -> DestinationDocument:
    each = progress.destination
    return DestinationDocument(
        id=each.id,
        project=each.project,
        dataset=each.dataset,
        url=each.url,
        format=each.format,
        fields=list(each.fields),
        state=each.state,
        problem=each.problem,
        failures=each.failures,
        next_at=iso(each.next_at) if each.failures else None,
        delivered=each.delivered,
        waiting=progress.waiting,
        delivered_at=iso(each.delivered_at),
        created_at=iso(each.created_at),
        created_by=each.created_by,
    )


operations = Operations("datasets")

DATASET_PATH = "/datasets/{project}/{name}"
DATASET_EXAMPLE = {
    "project": "shop",
    "name": "prices",
    "key_fields": ["url"],
    "schema": {"type": "object", "required": ["url", "price"], "properties": {"price": {"type": "number"}}},
    "created_at": "2026-12-01T02:00:04.100Z",
    "records": 120,
    "items": 3600,
    "at_least": None,
    "newest": None,
}
RECORD_EXAMPLE = {
    "id": 12,
    "key": "0f343b0931126a20f133d67c2b018a3b",
    "revisions": 2,
    "seen": 30,
    "first_seen_at": "2026-11-01T02:00:04.100Z",
    "last_seen_at": "2026-12-01T02:00:04.100Z",
    "last_run_id": 7,
    "data": {"url": "https://shop.example/1", "price": 12.5},
}
REVISION_EXAMPLE = {
    "number": 2,
    "at": "2026-12-01T02:00:04.100Z",
    "run_id": 7,
    "attempt": 1,
    "seq": 1,
    "data": {"url": "https://shop.example/1", "price": 12.5},
}
DATASET_RUN_EXAMPLE = {
    "run_id": 7,
    "attempt": 1,
    "state": "succeeded",
    "items": 120,
    "new_records": 3,
    "changed_records": 9,
    "refused": 0,
    "invalid": 0,
    "drift": [],
    "at": "2026-12-01T02:00:04.100Z",
}


class DatasetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which datasets."""

    project: str | None = None
    name: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """What its name must contain."""
    newest: bool = False
    """Tell what came last to each, count its records up to 1,000, and answer in pages."""
    after: PageCursor | None = None
    limit: Limit = 50


@operations.get(
    "/datasets",
    needs=Role.VIEWER,
    query=DatasetQuery,
    answer=Page[DatasetDocument],
    example={"items": [DATASET_EXAMPLE | {"records": None, "items": None}], "next": None},
)
async def list_(call: Call) -> Page[DatasetDocument]:
    """List the datasets that there are, by project and name."""
    asked: DatasetQuery = call.query
    visible, after = call.visible(asked.project), decode_names(asked.after, 2) or ("", "")
    if not asked.newest:
        found = await call.app.datasets.all(visible)
        return Page(items=[dataset_document(each) for each in found if asked.name.lower() in each.name.lower()])
    seen = await call.app.datasets.glances(visible, part=asked.name, after=(after[0], after[1]), limit=asked.limit + 1)
    return Page.of(
        [dataset_document(*each) for each in seen], asked.limit, place=lambda each: (each.project, each.name)
    )


class DatasetCountQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of a dataset."""

    count: bool = True
    """Count all that is in it, which takes the longer the more that is; else records up to 10,000, and no items."""


@operations.get(
    DATASET_PATH, needs=Role.VIEWER, query=DatasetCountQuery, answer=DatasetDocument, example=DATASET_EXAMPLE
)
async def show(call: Call) -> DatasetDocument:
    """Show a dataset, what came last, and count what is in it."""
    which = _check_dataset(call)
    dataset, counts, newest = await call.app.datasets.glance(*which)
    if call.query.count:
        counts = await call.app.datasets.counts(*which)
    return dataset_document(dataset, counts, newest)


class DatasetRunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the list."""

    after: PageCursor | None = None
    limit: Limit = 50


@operations.get(
    f"{DATASET_PATH}/runs",
    needs=Role.VIEWER,
    query=DatasetRunQuery,
    answer=Page[DatasetRunDocument],
    example={"items": [DATASET_RUN_EXAMPLE], "next": None},
)
async def runs(call: Call) -> Page[DatasetRunDocument]:
    """List what each attempt brought to a dataset, newest first."""
    which, asked = _check_dataset(call), call.query
    below = decode_numbers(asked.after, 2) or (NEWEST, 0)
    found = await call.app.datasets.runs(*which, below=(below[0], below[1]), limit=asked.limit + 1)
    return Page.of(found, asked.limit, place=lambda each: (each.run_id, each.attempt)).shown(dataset_run_document)


class DatasetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a dataset is to be like."""

    key_fields: Annotated[list[str], msgspec.Meta(max_length=20)] = []
    """The fields that identify a record; none: all of them. A change counts for items that come later."""
    schema: dict[str, Any] | None = None
    """A JSON Schema; of it type, required, properties, items, enum and additionalProperties are checked."""


@operations.put(
    DATASET_PATH,
    needs=Role.DEVELOPER,
    body=DatasetSettings,
    answer=DatasetDocument,
    example=DATASET_EXAMPLE,
    example_body={"key_fields": ["url"], "schema": {"type": "object", "required": ["url"]}},
)
async def put(call: Call) -> DatasetDocument:
    """Set the key fields and the schema of a dataset; make it where there is none."""
    which, body = _check_dataset(call), call.body
    await call.app.datasets.set(*which, key_fields=body.key_fields, schema=body.schema)
    return dataset_document(*await call.app.datasets.glance(*which))


SeenTime = Annotated[datetime, msgspec.Meta(tz=True, description="RFC 3339, with its zone.")]
RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of a dataset."""

    where: WhereFilter | None = None
    contains: ContainsFilter | None = None
    search: SearchFilter | None = None
    first_seen_after: SeenTime | None = None
    first_seen_before: SeenTime | None = None
    last_seen_after: SeenTime | None = None
    last_seen_before: SeenTime | None = None
    new_in_run: RunId | None = None
    """Only those that this run found first."""
    changed_in_run: RunId | None = None
    """Only those that looked otherwise in this run than before it."""
    unseen_in_run: RunId | None = None
    """Only those that were last seen before this run."""
    after: PageCursor | None = None
    limit: Limit = 50


@operations.get(
    f"{DATASET_PATH}/records",
    needs=Role.VIEWER,
    query=RecordQuery,
    answer=Page[RecordDocument],
    example={"items": [RECORD_EXAMPLE], "next": None},
)
async def records(call: Call) -> Page[RecordDocument]:
    """List what is in a dataset, newest first.

    Large records, or a filter that few meet, may give a short page, even an empty one; as long as it has a ``next``,
    there may be more.
    """
    which, asked = _check_dataset(call), call.query
    below = decode_number(asked.after)
    found = await call.app.datasets.records(
        *which, _filter(asked), below=NEWEST if below is None else below, limit=asked.limit
    )
    following = None if found.next is None else encode_cursor(found.next)
    schema = (await call.app.datasets.get(*which)).schema
    return Page(items=[record_document(each, schema) for each in found.records], next=following)


class RevisionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which revisions of a record."""

    below: Annotated[int, msgspec.Meta(ge=1, le=NEWEST_REVISION)] = NEWEST_REVISION
    """Only revisions with smaller numbers."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_REVISIONS)] = MOST_REVISIONS


@operations.get(
    f"{DATASET_PATH}/records/{{record_id}}",
    needs=Role.VIEWER,
    query=RevisionQuery,
    answer=RecordHistoryDocument,
    example={"record": RECORD_EXAMPLE, "revisions": [REVISION_EXAMPLE]},
)
async def record(call: Call) -> RecordHistoryDocument:
    """Show one thing and how it looked, newest first."""
    which, asked = _check_dataset(call), call.query
    record_id = call.number("record_id", "record")
    found = await call.app.datasets.record(*which, record_id, below=asked.below, limit=asked.limit)
    return record_history_document(*found, (await call.app.datasets.get(*which)).schema)


class DatasetItemQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which items of a dataset."""

    every: bool = False
    """Each item ever stored, not only the newest look of each record."""
    where: WhereFilter | None = None
    contains: ContainsFilter | None = None
    search: SearchFilter | None = None
    after: PageCursor | None = None
    limit: Limit = 100


@operations.get(
    f"{DATASET_PATH}/items",
    needs=Role.VIEWER,
    query=DatasetItemQuery,
    answer=Page[ItemDocument],
    example={"items": [ITEM_EXAMPLE], "next": None},
)
async def items(call: Call) -> Page[ItemDocument]:
    """List the newest item of each record in a dataset, or every item; oldest first."""
    (project, name), asked = _check_dataset(call), call.query
    where = item_conditions(asked.where, asked.contains, asked.search)
    wanted = ItemQuery(project=project, dataset=name, every=asked.every, where=where)
    found = await call.app.items.page(wanted, item_cursor(asked.after), limit=asked.limit)
    return item_page(found, (await call.app.datasets.get(project, name)).schema)


class DatasetFieldsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are looked at: the newest."""

    sample: SampleSize = 1000


@operations.get(
    f"{DATASET_PATH}/fields",
    needs=Role.VIEWER,
    query=DatasetFieldsQuery,
    answer=ItemFieldsDocument,
    example=FIELDS_EXAMPLE,
)
async def fields(call: Call) -> ItemFieldsDocument:
    """Tell which fields the newest 1,000 records of a dataset have, how often they are filled, and of what type."""
    return fields_document(await call.app.datasets.fields(*_check_dataset(call), sample=call.query.sample))


def _check_dataset(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"dataset {name}")
    return project, name


def _filter(asked: RecordQuery) -> RecordFilter:
    times = ("first_seen_after", "first_seen_before", "last_seen_after", "last_seen_before")
    told = {name: getattr(asked, name) for name in times}
    return RecordFilter(
        where=item_conditions(asked.where, asked.contains, asked.search),
        new_in_run=asked.new_in_run,
        changed_in_run=asked.changed_in_run,
        unseen_in_run=asked.unseen_in_run,
        **{name: moment(when) for name, when in told.items() if when is not None},
    )


destination_operations = Operations("destinations")

DESTINATIONS_PATH = "/datasets/{project}/{name}/destinations"


class DestinationInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address and what arrives there."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    """``s3://KEY_ID:{{secret:NAME}}@bucket/prefix``, ``file:folder`` or ``postgresql://…/database/table``. A table
    has a row for each record, or with ``?rows=items`` for each item. The secret must be there."""
    format: ExportFormat = ExportFormat.JSONL
    """Of files and objects."""
    fields: list[str] = []
    """Which fields, in this order; empty for all. Of a table: which become columns, ``price:number`` one of numbers."""


DESTINATION_EXAMPLE: dict[str, Any] = {
    "id": 1,
    "project": "shop",
    "dataset": "prices",
    "url": "s3://AKIAEXAMPLE:{{secret:S3_SECRET}}@bucket/prices",
    "format": "parquet",
    "fields": [],
    "state": "active",
    "problem": None,
    "failures": 0,
    "next_at": None,
    "delivered": 128_000,
    "waiting": 0,
    "delivered_at": "2026-06-01T12:00:30.000Z",
    "created_at": "2026-06-01T12:00:00.000Z",
    "created_by": "admin",
}
DESTINATION_INPUT_EXAMPLE = {name: DESTINATION_EXAMPLE[name] for name in ("url", "format", "fields")}


@destination_operations.get(
    DESTINATIONS_PATH,
    name="list",
    needs=Role.DEVELOPER,
    answer=Page[DestinationDocument],
    example={"items": [DESTINATION_EXAMPLE], "next": None},
)
async def list_destinations(call: Call) -> Page[DestinationDocument]:
    """List the destinations of a dataset, with what waits for each and why one fails."""
    found = await call.app.destinations.all(*_check_destination(call))
    return Page(items=[destination_document(each) for each in found])


@destination_operations.post(
    DESTINATIONS_PATH,
    name="add",
    needs=Role.ADMIN,
    body=DestinationInput,
    answer=DestinationDocument,
    status=201,
    example=DESTINATION_EXAMPLE,
    example_body=DESTINATION_INPUT_EXAMPLE,
)
async def add_destination(call: Call) -> DestinationDocument:
    """Deliver every item of a dataset to an address: those that are there, and those that come."""
    new: DestinationInput = call.body
    project, name = _check_destination(call)
    added = await call.app.destinations.add(
        project, name, new.url, by=call.caller.name, format=new.format, fields=new.fields
    )
    call.headers["Location"] = f"/v1/datasets/{project}/{quote(name, safe='')}/destinations/{added.destination.id}"
    return destination_document(added)


@destination_operations.get(
    DESTINATIONS_PATH + "/{destination_id}",
    name="show",
    needs=Role.DEVELOPER,
    answer=DestinationDocument,
    example=DESTINATION_EXAMPLE,
)
async def show_destination(call: Call) -> DestinationDocument:
    """Show one destination and how it goes."""
    project, name = _check_destination(call)
    return destination_document(
        await call.app.destinations.get(project, name, call.number("destination_id", "destination"))
    )


@destination_operations.post(
    DESTINATIONS_PATH + "/{destination_id}/retry",
    name="retry",
    needs=Role.DEVELOPER,
    answer=DestinationDocument,
    status=202,
    example=DESTINATION_EXAMPLE,
)
async def retry_destination(call: Call) -> DestinationDocument:
    """Forget why the newest try failed, and deliver now instead of at the next try."""
    project, name = _check_destination(call)
    return destination_document(
        await call.app.destinations.retry(project, name, call.number("destination_id", "destination"))
    )


@destination_operations.delete(DESTINATIONS_PATH + "/{destination_id}", name="remove", needs=Role.ADMIN)
async def remove_destination(call: Call) -> None:
    """Deliver nothing there any more; what has arrived stays."""
    project, name = _check_destination(call)
    await call.app.destinations.remove(project, name, call.number("destination_id", "destination"))


def _check_destination(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"dataset {project}/{name}")
    return project, name
