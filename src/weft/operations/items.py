"""List the items of a run with their fields and statistics, and export items as a file."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from starlette.responses import Response, StreamingResponse

from weft import strict_json
from weft.access.model import Role
from weft.clock import iso
from weft.errors import AdapterMissing, Invalid, NotFound, WeftError
from weft.items.exporters import ExportFormat, export, item_source
from weft.items.items import BEGIN, Cursor, ItemPage
from weft.items.model import AttemptStats, FieldFilter, Item, ItemQuery
from weft.items.schemas import FieldSummary, problem_of
from weft.operations.operation import Call, Operations, Time
from weft.operations.paging import Limit, Page, PageCursor, decode_names, encode_cursor


class ItemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One item, and where it came from."""

    run_id: int
    attempt: int
    seq: int
    """Its number in the attempt, from 1 on."""
    at: Time
    record_id: int
    """What it was seen of."""
    data: dict[str, Any]
    problem: str | None = None
    """What about it is not as the dataset's schema says."""


class AttemptStatsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt has yielded so far, counted where it was stored."""

    run_id: int
    attempt: int
    dataset: str | None
    items: int
    new_records: int
    changed_records: int
    refused: int
    """Lines that are no item: not JSON, not an object, or too large."""
    invalid: int
    """Items that were stored though the dataset's schema says that they should not look so."""
    stats: dict[str, Any]
    """Scrapy's own, by its names."""
    drift: dict[str, Any] | None
    """What differs from the runs before it."""
    at: Time


class ItemFieldDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One field of the records of a dataset."""

    name: str
    present: int
    filled: int
    """Neither null nor an empty text, list or object."""
    fill_rate: float
    """From 0 to 1."""
    types: dict[str, int]


class ItemFieldsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest records of a dataset look like."""

    sampled: int
    fields: list[ItemFieldDocument]
    inferred: dict[str, Any]
    """The JSON Schema that all of them meet."""
    invalid: int
    """How many are not as the dataset's own schema says."""
    problems: list[str]


def item_document(row: Item, schema: Mapping[str, Any] | None = None) -> ItemDocument:
    return ItemDocument(
        run_id=row.run_id,
        attempt=row.attempt,
        seq=row.seq,
        at=iso(row.at) or "",
        record_id=row.record_id,
        data=row.data,
        problem=None if schema is None else problem_of(row.data, schema),
    )


def stats_document(stats: AttemptStats) -> AttemptStatsDocument:
    document: AttemptStatsDocument = with_time(AttemptStatsDocument, stats)
    return document


def fields_document(found: FieldSummary) -> ItemFieldsDocument:
    return ItemFieldsDocument(
        sampled=found.sampled,
        fields=[
            ItemFieldDocument(name=name, fill_rate=round(field["filled"] / found.sampled, 4), **field)
            for name, field in found.fields.items()
        ],
        inferred=dict(found.inferred),
        invalid=found.invalid,
        problems=list(found.problems),
    )


def with_time(kind: Any, value: Any) -> Any:
    return kind(**{name: getattr(value, name) for name in kind.__struct_fields__} | {"at": iso(value.at)})


WhereFilter = Annotated[
    str,
    msgspec.Meta(
        description='Fields and what they must be, as a JSON object: {"price": 12.5}.', examples=['{"price": 12.5}']
    ),
]
ContainsFilter = Annotated[
    str,
    msgspec.Meta(
        description='Fields and a text that each must contain, as a JSON object: {"title": "book"}.',
        examples=['{"title": "book"}'],
    ),
]
SearchFilter = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=1000, description="A text that any field must contain; capitals count for nothing."
    ),
]

_MUST_BE = "it must be a JSON object of fields and their values"


def item_conditions(where: str | None, contains: str | None, search: str | None = None) -> tuple[FieldFilter, ...]:
    anywhere = () if search is None else (FieldFilter(None, search, part=True),)
    return (
        *_parsed_conditions("where", where, part=False),
        *_parsed_conditions("contains", contains, part=True),
        *anywhere,
    )


def _parsed_conditions(name: str, text: str | None, *, part: bool) -> list[FieldFilter]:
    if text is None:
        return []
    try:
        told = strict_json.decode(text, dict[str, str | int | float | bool | None])
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise Invalid(name, text, _MUST_BE) from problem
    return [FieldFilter(field, _condition_text(value), part) for field, value in told.items()]


def _condition_text(value: str | int | float | bool | None) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def item_cursor(after: str | None) -> Cursor:
    """The place of the item after which to go on."""
    found = decode_names(after, 3)
    if found is None:
        return BEGIN
    if not all(each.isascii() and each.isdecimal() and len(each) < 20 and int(each) < 2**63 for each in found):
        raise Invalid("after", after, "it must be the next of an earlier page")
    run_id, attempt, seq = map(int, found)
    if attempt >= 2**31:
        raise Invalid("after", after, "it must be the next of an earlier page")
    return run_id, attempt, seq


def item_page(found: ItemPage, schema: Mapping[str, Any] | None) -> Page[ItemDocument]:
    """Items with what about each is not as ``schema`` says."""
    following = None if found.next is None else encode_cursor(tuple(map(str, found.next)))
    return Page(items=[item_document(row, schema) for row in found.rows], next=following)


operations = Operations("items")

ITEM_EXAMPLE = {
    "run_id": 7,
    "attempt": 1,
    "seq": 1,
    "at": "2026-12-01T02:00:04.100Z",
    "record_id": 12,
    "data": {"title": "A book", "price": 12.5},
    "problem": None,
}
STATS_EXAMPLE = {
    "run_id": 7,
    "attempt": 1,
    "dataset": "prices",
    "items": 120,
    "new_records": 3,
    "changed_records": 9,
    "refused": 0,
    "invalid": 0,
    "stats": {"item_scraped_count": 120},
    "drift": None,
    "at": "2026-12-01T02:00:04.100Z",
}


FIELDS_EXAMPLE = {
    "sampled": 1000,
    "fields": [{"name": "price", "present": 1000, "filled": 990, "fill_rate": 0.99, "types": {"number": 1000}}],
    "inferred": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]},
    "invalid": 0,
    "problems": [],
}

SampleSize = Annotated[int, msgspec.Meta(ge=1, le=1000, description="How many are looked at, at most.")]
ItemAttempt = Annotated[str, msgspec.Meta(pattern=r"^(all|[1-9][0-9]{0,8})$")]


class AttemptQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempt of a run."""

    attempt: ItemAttempt | None = None
    """Its number, or all. Default: the last one."""


class RunItemQuery(AttemptQuery, frozen=True, kw_only=True):
    """Which items of a run."""

    where: WhereFilter | None = None
    contains: ContainsFilter | None = None
    search: SearchFilter | None = None
    after: PageCursor | None = None
    limit: Limit = 100


@operations.get(
    "/runs/{run_id}/items",
    needs=Role.VIEWER,
    query=RunItemQuery,
    answer=Page[ItemDocument],
    example={"items": [ITEM_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[ItemDocument]:
    """List the items that a run has yielded, in their order.

    Large items, or a filter that few meet, may give a short page, even an empty one; as long as it has a ``next``,
    there may be more.
    """
    asked: RunItemQuery = call.query
    wanted = replace(await _selected(call), where=item_conditions(asked.where, asked.contains, asked.search))
    found = await call.app.items.page(wanted, item_cursor(asked.after), limit=asked.limit)
    return item_page(found, await _schema(call, wanted.run_id))


@operations.get("/runs/{run_id}/items/{attempt}/{seq}", needs=Role.VIEWER, answer=ItemDocument, example=ITEM_EXAMPLE)
async def show(call: Call) -> ItemDocument:
    """Show one item of a run."""
    run_id = await _checked(call)
    row = await call.app.items.one(run_id, call.number("attempt", "attempt"), call.number("seq", "item"))
    return item_document(row, await _schema(call, run_id))


class RunFieldsQuery(AttemptQuery, frozen=True, kw_only=True):
    """Which items are looked at."""

    sample: SampleSize = 1000


@operations.get(
    "/runs/{run_id}/fields", needs=Role.VIEWER, query=RunFieldsQuery, answer=ItemFieldsDocument, example=FIELDS_EXAMPLE
)
async def fields(call: Call) -> ItemFieldsDocument:
    """Tell which fields the first 1,000 items of a run have, how often they are filled, and of what type."""
    return fields_document(await call.app.items.fields(await _selected(call), sample=call.query.sample))


@operations.get(
    "/runs/{run_id}/stats",
    needs=Role.VIEWER,
    answer=Page[AttemptStatsDocument],
    example={"items": [STATS_EXAMPLE], "next": None},
)
async def stats(call: Call) -> Page[AttemptStatsDocument]:
    """Tell what each attempt of a run has yielded, and its statistics."""
    return Page(items=[stats_document(each) for each in await call.app.items.stats(await _checked(call))])


async def _selected(call: Call) -> ItemQuery:
    """The items of the attempts that were asked for."""
    run_id, asked = await _checked(call), call.query.attempt
    number = None if asked in (None, "all") else int(asked)
    if number is not None and number > (had := (await call.app.runs.get(run_id)).attempt):
        raise Invalid("attempt", number, f"run {run_id} has had {had} attempts")
    return ItemQuery(run_id=run_id, attempt=number, all_attempts=asked == "all")


async def _schema(call: Call, run_id: int | None) -> Mapping[str, Any] | None:
    dataset = None if run_id is None else await call.app.items.dataset(run_id)
    return None if dataset is None else dataset.schema


async def _checked(call: Call) -> int:
    """The run that the address names, of a project where the caller may do this."""
    run_id = call.number("run_id", "run")
    found = await call.app.runs.projects_of([run_id])
    if run_id not in found:
        raise NotFound("run", run_id)
    call.check(found[run_id], f"run {run_id}")
    return run_id


log = logging.getLogger(__name__)

export_operations = Operations("exports")

MOST_FIELDS = 1_000
EXPORT_EXAMPLE = '{"name":"green tea","price":3.5}\n'
EXPORT_HEADERS = {"Content-Disposition": "A name for the file."}
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)

ItemNumber = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class ExportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What the file is to be like."""

    format: ExportFormat = ExportFormat.JSONL
    fields: str = ""
    """Which, in this order, separated by commas; empty for all."""
    ids: bool = False
    """Put weft_run, weft_attempt, weft_seq, weft_record and weft_at in front of each item's own fields."""
    raw: bool = False
    """Leave cells of CSV as they are, even where a spreadsheet would take them for formulas."""
    where: WhereFilter | None = None
    contains: ContainsFilter | None = None
    search: SearchFilter | None = None


class RunExportQuery(ExportQuery, frozen=True, kw_only=True):
    attempt: ItemNumber | None = None
    """Default: the last one that has yielded anything."""


class DatasetExportQuery(ExportQuery, frozen=True, kw_only=True):
    every: bool = False
    """Each item ever stored, not only the newest look of each record."""


@export_operations.get(
    "/runs/{run_id}/items/export",
    name="run",
    needs=Role.VIEWER,
    query=RunExportQuery,
    answer=Any,
    media_type="*/*",
    answer_headers=EXPORT_HEADERS,
    example=EXPORT_EXAMPLE,
)
async def export_run(call: Call) -> Response:
    """Give the items of a run as a file: jsonl, json, csv, xml or parquet."""
    run_id = call.number("run_id", "run")
    found = await call.app.runs.get(run_id)
    call.check(found.project, f"run {run_id}")
    wanted = ItemQuery(run_id=run_id, attempt=call.query.attempt, where=_export_where(call.query))
    return await export_file(call, wanted, f"run-{run_id}")


@export_operations.get(
    "/datasets/{project}/{name}/export",
    name="dataset",
    needs=Role.VIEWER,
    query=DatasetExportQuery,
    answer=Any,
    media_type="*/*",
    answer_headers=EXPORT_HEADERS,
    example=EXPORT_EXAMPLE,
)
async def export_dataset(call: Call) -> Response:
    """Give the items of a dataset as a file: the newest look of each record, or every item."""
    project, name = call.path("project"), call.path("name")
    call.check(project, f"dataset {project}/{name}")
    await call.app.datasets.get(project, name)
    wanted = ItemQuery(project=project, dataset=name, every=call.query.every, where=_export_where(call.query))
    return await export_file(call, wanted, f"{project}-{name}")


async def export_file(call: Call, wanted: ItemQuery, name: str) -> Response:
    """The answer begins with its first piece, so that what is wrong from the start is told as a problem."""
    shape: ExportQuery = call.query
    headers = {"Content-Disposition": f'attachment; filename="{NOT_IN_NAMES.sub("_", name)}.{shape.format}"'}
    if call.http.method == "HEAD":
        return Response(headers=headers, media_type=shape.format.media_type)
    source = item_source(lambda: call.app.items.rows(wanted), ids=shape.ids)
    try:
        pieces = export(shape.format, source, _export_fields(shape.fields), raw=shape.raw)
    except AdapterMissing as missing:
        raise Invalid("format", shape.format.value, str(missing)) from missing
    first = await anext(pieces, b"")
    return StreamingResponse(_export_line(first, pieces, name), headers=headers, media_type=shape.format.media_type)


async def _export_line(first: bytes, rest: AsyncIterator[bytes], name: str) -> AsyncIterator[bytes]:
    """All pieces. What goes wrong is raised: the connection is cut, and nobody takes a part for the whole."""
    try:
        yield first
        async for piece in rest:
            yield piece
    except WeftError as problem:
        log.warning("an export was cut off", extra={"export": name, "why": str(problem)})
        raise


def _export_where(shape: ExportQuery) -> tuple[FieldFilter, ...]:
    return item_conditions(shape.where, shape.contains, shape.search)


def _export_fields(text: str) -> tuple[str, ...]:
    fields = tuple(dict.fromkeys(text.split(","))) if text else ()
    if len(fields) > MOST_FIELDS or not all(fields):
        raise Invalid("fields", text[:200], f"they must be up to {MOST_FIELDS} names, separated by commas")
    return fields
