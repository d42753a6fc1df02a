"""Exports items as JSON, JSON Lines, CSV, XML or Parquet: rows go in, bytes come out, a few rows at a time.

A cell of CSV that a spreadsheet would take for a formula gets an apostrophe in front, unless raw cells are wanted. The
columns of Parquet and their types are found in a first pass through all rows: a column is boolean, int64 or double
where each of its values is; every other column is text, what is nested in it JSON.
"""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from weft.clock import Moment, iso
from weft.errors import NOT_SHOWN, AdapterMissing, Conflict, Invalid
from weft.items.model import Item

Row = Mapping[str, Any]
Rows = AsyncIterator[Row]
Source = Callable[[], Rows]
"""Gives the rows from the first on, each time that it is called."""

Columns = tuple[str, ...]
PIECE_BYTES = 65_536
MOST_COLUMNS = 5_000
"""A table with more is of no use to anybody, and each of its rows would have all of them."""
SCALARS = (str, int, float, bool, type(None))


async def buffered(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in fewer pieces."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


async def columns_of(rows: Rows) -> Columns:
    """Every field that a row has, in the order in which they first come."""
    found: dict[str, None] = {}
    async for row in rows:
        if not row.keys() <= found.keys():
            found |= dict.fromkeys(row)
            check_columns(found)
    return tuple(found)


def check_columns(found: Collection[str]) -> None:
    if len(found) > MOST_COLUMNS:
        raise Invalid("fields", NOT_SHOWN, f"the items have more than {MOST_COLUMNS}; name those that you want")


def selected_fields(row: Row, fields: Columns) -> Row:
    """Those fields of a row that it has; all of them where none are named."""
    return {name: row[name] for name in fields if name in row} if fields else row


def refuse_others(row: Row, known: Iterable[str]) -> None:
    """Refuse a row that would lose a field."""
    for name in row.keys() - set(known):
        raise schema_changed(name)


def schema_changed(field: str) -> Conflict:
    """The error for a column that began without knowing what a later row has for it."""
    return Conflict(f"field {field!r} changed while it was exported; name the fields that you want, or try again")


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def item_source(items: Callable[[], AsyncIterator[Item]], *, ids: bool) -> Source:
    """The fields of each item, with its ids in front where they are wanted."""

    async def rows() -> AsyncIterator[Row]:
        async for item in items():
            yield with_ids(item, item.data) if ids else item.data

    return rows


def with_ids(item: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Fields with the ids of their item in front; a field that is called like an id gives way to it."""
    at: Moment = item.at
    ids = {"weft_run": item.run_id, "weft_attempt": item.attempt, "weft_seq": item.seq}
    ids |= {"weft_record": item.record_id, "weft_at": iso(at)}
    return {**ids, **data, **ids}


async def json_lines(source: Source, fields: Columns) -> AsyncIterator[bytes]:
    async for row in source():
        yield msgspec.json.encode(selected_fields(row, fields)) + b"\n"


async def json_array(source: Source, fields: Columns) -> AsyncIterator[bytes]:
    """The closing bracket comes last, so that a list that was cut off is no JSON."""
    before = b"[\n"
    async for row in source():
        yield before + msgspec.json.encode(selected_fields(row, fields))
        before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


FORMULA_PREFIXES = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
"""Spreadsheets read the full-width ones as the others."""


async def csv_table(source: Source, fields: Columns, *, raw: bool = False) -> AsyncIterator[bytes]:
    """A header and a line a row. Where no fields are named, all rows are looked through for them first."""
    columns = fields or await columns_of(source())
    line = io.StringIO()
    writer = csv.writer(line)

    def written(cells: list[Any]) -> bytes:
        line.seek(0)
        line.truncate()
        writer.writerow(cells)
        return line.getvalue().encode("utf-8", "replace")

    if columns:
        yield written([csv_cell(name, raw=raw) for name in columns])
    async for row in source():
        if not fields:
            refuse_others(row, columns)
        yield written([csv_cell(row.get(name), raw=raw) for name in columns])


def csv_cell(value: Any, *, raw: bool = False) -> Any:
    """A value as a cell: nothing for null, JSON for what is nested. A number is none of the formulas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, SCALARS):
        value = json_text(value)
    if isinstance(value, str) and not raw and value.startswith(FORMULA_PREFIXES):
        return f"'{value}"
    return value


DEEPEST_XML = 32
"""What is nested deeper is written as JSON."""

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_XML_NAMES = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)
_BEGINS_XML_NAME = re.compile(r"(?!xml)[A-Za-z_]", re.ASCII | re.IGNORECASE)
_XML_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})
"""A reader would take a return for the end of a line otherwise."""

_XML_ATTRIBUTE_ESCAPES = _XML_ESCAPES | str.maketrans({"\t": "&#9;", "\n": "&#10;"})


async def xml_document(source: Source, fields: Columns) -> AsyncIterator[bytes]:
    yield b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n'
    async for row in source():
        yield (xml_element("item", selected_fields(row, fields)) + "\n").encode()
    yield b"</items>\n"


def xml_element(name: str, value: Any, depth: int = 0) -> str:
    """A value as an element; where its name had to be changed, an attribute tells the real one."""
    tag = xml_name(name)
    attributes = "" if tag == name else f' name="{xml_text(name).translate(_XML_ATTRIBUTE_ESCAPES)}"'
    if value is None:
        return f'<{tag}{attributes} nil="true"/>'
    return f"<{tag}{attributes}>{_xml_content(value, depth)}</{tag}>"


def xml_name(name: str) -> str:
    """A name that an element may have: letters, digits, ``_``, ``.`` and ``-``."""
    valid = _NOT_IN_XML_NAMES.sub("_", name)
    return valid if _BEGINS_XML_NAME.match(valid) else f"_{valid}"


def xml_text(text: str) -> str:
    """A text without the characters that XML cannot have."""
    return _NOT_XML.sub("", text)


def _xml_content(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return xml_text(value).translate(_XML_ESCAPES)
    if isinstance(value, Mapping | list | tuple) and depth < DEEPEST_XML:
        parts = value.items() if isinstance(value, Mapping) else (("value", each) for each in value)
        return "".join(xml_element(str(name), each, depth + 1) for name, each in parts)
    return xml_text(json_text(value)).translate(_XML_ESCAPES)


GROUP_ROWS = 10_000
GROUP_BYTES = 16_000_000
LARGEST_INT64 = 2**63
LARGEST_EXACT = 2**53
"""Up to here each whole number is a double."""

INT, WIDE, DOUBLE, BOOL, TEXT = "int", "wide", "double", "bool", "text"
_COMMON_TYPES = {frozenset({INT, WIDE}): WIDE, frozenset({INT, DOUBLE}): DOUBLE}


async def parquet_file(source: Source, fields: Columns) -> AsyncIterator[bytes]:
    pa, pq = import_pyarrow()
    kinds = await column_types(source(), fields)
    schema = pa.schema([(name, _arrow_type(pa, kind)) for name, kind in kinds.items()])
    drain = DrainedFile()
    writer = pq.ParquetWriter(drain, schema, compression="zstd")
    async for rows in _row_groups(source()):
        if not fields:
            for row in rows:
                refuse_others(row, kinds)
        await asyncio.to_thread(_write_group, pa, writer, schema, rows, kinds)
        yield drain.taken()
    writer.close()
    yield drain.taken()


def import_pyarrow() -> tuple[Any, Any]:
    """The library; it is large, so nothing else loads it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as missing:
        raise AdapterMissing("format", "parquet", "parquet") from missing
    return pyarrow, pyarrow.parquet


async def column_types(rows: Rows, fields: Columns) -> dict[str, str]:
    """What each column holds, in order."""
    found: dict[str, str | None] = dict.fromkeys(fields)
    async for row in rows:
        for name, value in row.items() if not fields else ((name, row.get(name)) for name in fields):
            found[name] = _common_type(found.get(name), _type_of(value))
        check_columns(found)
    return {name: kind or TEXT for name, kind in found.items()}


class DrainedFile:
    """A file that hands on what was written to it."""

    def __init__(self) -> None:
        self._held, self._told, self.closed = bytearray(), 0, False

    def write(self, data: Any) -> int:
        size = len(memoryview(data).cast("B"))
        self._held += data
        self._told += size
        return size

    def tell(self) -> int:
        return self._told

    def taken(self) -> bytes:
        taken = bytes(self._held)
        self._held.clear()
        return taken

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True


def _type_of(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT if abs(value) <= LARGEST_EXACT else WIDE if -LARGEST_INT64 <= value < LARGEST_INT64 else TEXT
    return DOUBLE if isinstance(value, float) else TEXT


def _common_type(one: str | None, other: str | None) -> str | None:
    if one is None or other is None or one == other:
        return one or other
    return _COMMON_TYPES.get(frozenset({one, other}), TEXT)


def _arrow_type(pa: Any, kind: str) -> Any:
    return {INT: pa.int64(), WIDE: pa.int64(), DOUBLE: pa.float64(), BOOL: pa.bool_()}.get(kind, pa.string())


async def _row_groups(rows: Rows) -> AsyncIterator[list[Row]]:
    group: list[Row] = []
    size = 0
    async for row in rows:
        group.append(row)
        size += len(msgspec.json.encode(row))
        if len(group) >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _write_group(pa: Any, writer: Any, schema: Any, rows: list[Row], kinds: Mapping[str, str]) -> None:
    columns = [
        pa.array([_fit(name, row.get(name), kind) for row in rows], type=schema.field(name).type)
        for name, kind in kinds.items()
    ]
    writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=len(rows))


def _fit(name: str, value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == TEXT:
        return _without_surrogates(value) if isinstance(value, str) else json_text(value)
    if _common_type(kind, _type_of(value)) != kind:
        raise schema_changed(name)
    return float(value) if kind == DOUBLE else value


def _without_surrogates(text: str) -> str:
    """A text without halves of characters, which no encoding has."""
    return text.encode("utf-8", "replace").decode()


class ExportFormat(StrEnum):
    """How rows are written; the name is the ending of the file."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    XML = "xml"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    ExportFormat.JSONL: "application/x-ndjson",
    ExportFormat.JSON: "application/json",
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.XML: "application/xml",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


def export(format: ExportFormat, source: Source, fields: Columns = (), *, raw: bool = False) -> AsyncIterator[bytes]:
    """The rows of ``source`` in a format: the named fields in that order, or all.

    CSV and Parquet look at all rows twice where they must know all columns before the first. ``raw`` leaves cells of
    CSV as they are, even where a spreadsheet would take them for formulas. What a format needs is loaded with its first
    use; where that is missing, this is told before the first byte.
    """
    if format is ExportFormat.CSV:
        return buffered(csv_table(source, fields, raw=raw))
    if format is ExportFormat.XML:
        return buffered(xml_document(source, fields))
    if format is ExportFormat.PARQUET:
        import_pyarrow()
        return buffered(parquet_file(source, fields))
    return buffered(json_array(source, fields) if format is ExportFormat.JSON else json_lines(source, fields))
