"""Items as files, however many there are."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from starlette.responses import Response, StreamingResponse

from weft.access.model import Role
from weft.api.call import Call
from weft.api.items_asked import Contains, Search, Where, conditions
from weft.api.operation import Operations
from weft.errors import AdapterMissing, Invalid, WeftError
from weft.items.export.formats import Format, exported
from weft.items.export.selected import source_of
from weft.items.model import Condition, Selection

log = logging.getLogger(__name__)

operations = Operations("exports")

MOST_FIELDS = 1_000
EXAMPLE = '{"name":"green tea","price":3.5}\n'
HEADERS = {"Content-Disposition": "A name for the file."}
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)

Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What the file is to be like."""

    format: Format = Format.JSONL
    fields: str = ""
    """Which, in this order, separated by commas; empty for all."""
    ids: bool = False
    """Put weft_run, weft_attempt, weft_seq, weft_thing and weft_at in front of each item's own fields."""
    raw: bool = False
    """Leave cells of CSV as they are, even where a spreadsheet would take them for formulas."""
    where: Where | None = None
    contains: Contains | None = None
    search: Search | None = None


class OfRun(Shape, frozen=True, kw_only=True):
    attempt: Number | None = None
    """The last one that has yielded anything unless told."""


class OfDataset(Shape, frozen=True, kw_only=True):
    every: bool = False
    """Each item ever stored, not only the newest look of each thing."""


@operations.get(
    "/runs/{run_id}/items/export",
    needs=Role.VIEWER,
    query=OfRun,
    answer=Any,
    media_type="*/*",
    answer_headers=HEADERS,
    example=EXAMPLE,
)
async def run(call: Call) -> Response:
    """Give the items of a run as a file: jsonl, json, csv, xml or parquet."""
    run_id = call.number("run_id", "run")
    found = await call.app.runs.get(run_id)
    call.check(found.project, f"run {run_id}")
    wanted = Selection(run_id=run_id, attempt=call.query.attempt, where=_where(call.query))
    return await file_of(call, wanted, f"run-{run_id}")


@operations.get(
    "/datasets/{project}/{name}/export",
    needs=Role.VIEWER,
    query=OfDataset,
    answer=Any,
    media_type="*/*",
    answer_headers=HEADERS,
    example=EXAMPLE,
)
async def dataset(call: Call) -> Response:
    """Give the items of a dataset as a file: the newest look of each thing, or every item."""
    project, name = call.path("project"), call.path("name")
    call.check(project, f"dataset {project}/{name}")
    await call.app.datasets.get(project, name)
    wanted = Selection(project=project, dataset=name, every=call.query.every, where=_where(call.query))
    return await file_of(call, wanted, f"{project}-{name}")


async def file_of(call: Call, wanted: Selection, name: str) -> Response:
    """The answer begins with its first piece, so that what is wrong from the start is told as a problem."""
    shape: Shape = call.query
    headers = {"Content-Disposition": f'attachment; filename="{NOT_IN_NAMES.sub("_", name)}.{shape.format}"'}
    if call.request.method == "HEAD":
        return Response(headers=headers, media_type=shape.format.media_type)
    source = source_of(lambda: call.app.items.rows(wanted), ids=shape.ids)
    try:
        pieces = exported(shape.format, source, _fields(shape.fields), raw=shape.raw)
    except AdapterMissing as missing:
        raise Invalid("format", shape.format.value, str(missing)) from missing
    first = await anext(pieces, b"")
    return StreamingResponse(_told(first, pieces, name), headers=headers, media_type=shape.format.media_type)


async def _told(first: bytes, rest: AsyncIterator[bytes], name: str) -> AsyncIterator[bytes]:
    """All pieces. What goes wrong is raised: the connection is cut, and nobody takes a part for the whole."""
    try:
        yield first
        async for piece in rest:
            yield piece
    except WeftError as problem:
        log.warning("an export was cut off", extra={"export": name, "why": str(problem)})
        raise


def _where(shape: Shape) -> tuple[Condition, ...]:
    return conditions(shape.where, shape.contains, shape.search)


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(dict.fromkeys(text.split(","))) if text else ()
    if len(fields) > MOST_FIELDS or not all(fields):
        raise Invalid("fields", text[:200], f"they must be up to {MOST_FIELDS} names, separated by commas")
    return fields
