"""Parquet, in groups of rows. The columns and their types are found in a first look through all rows.

A column is boolean, int64 or double where each of its values is; every other column is text, what is nested in it JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from weft.errors import AdapterMissing
from weft.items.export.rows import (
    Fields,
    Row,
    Rows,
    Source,
    changed_meanwhile,
    check_columns,
    json_text,
    refuse_others,
)

GROUP_ROWS = 10_000
GROUP_BYTES = 16_000_000
LARGEST_INT64 = 2**63
LARGEST_EXACT = 2**53
"""Up to here each whole number is a double."""

INT, WIDE, DOUBLE, BOOL, TEXT = "int", "wide", "double", "bool", "text"
_TOGETHER = {frozenset({INT, WIDE}): WIDE, frozenset({INT, DOUBLE}): DOUBLE}


async def parquet(source: Source, fields: Fields) -> AsyncIterator[bytes]:
    pa, pq = imported()
    kinds = await kinds_of(source(), fields)
    schema = pa.schema([(name, _type(pa, kind)) for name, kind in kinds.items()])
    drain = Drain()
    writer = pq.ParquetWriter(drain, schema, compression="zstd")
    async for rows in _groups(source()):
        if not fields:
            for row in rows:
                refuse_others(row, kinds)
        await asyncio.to_thread(_write, pa, writer, schema, rows, kinds)
        yield drain.taken()
    writer.close()
    yield drain.taken()


def imported() -> tuple[Any, Any]:
    """The library; it is large, so nothing else loads it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as missing:
        raise AdapterMissing("format", "parquet", "parquet") from missing
    return pyarrow, pyarrow.parquet


async def kinds_of(rows: Rows, fields: Fields) -> dict[str, str]:
    """What each column holds, in order."""
    found: dict[str, str | None] = dict.fromkeys(fields)
    async for row in rows:
        for name, value in row.items() if not fields else ((name, row.get(name)) for name in fields):
            found[name] = _joined(found.get(name), _kind(value))
        check_columns(found)
    return {name: kind or TEXT for name, kind in found.items()}


class Drain:
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


def _kind(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT if abs(value) <= LARGEST_EXACT else WIDE if -LARGEST_INT64 <= value < LARGEST_INT64 else TEXT
    return DOUBLE if isinstance(value, float) else TEXT


def _joined(one: str | None, other: str | None) -> str | None:
    if one is None or other is None or one == other:
        return one or other
    return _TOGETHER.get(frozenset({one, other}), TEXT)


def _type(pa: Any, kind: str) -> Any:
    return {INT: pa.int64(), WIDE: pa.int64(), DOUBLE: pa.float64(), BOOL: pa.bool_()}.get(kind, pa.string())


async def _groups(rows: Rows) -> AsyncIterator[list[Row]]:
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


def _write(pa: Any, writer: Any, schema: Any, rows: list[Row], kinds: Mapping[str, str]) -> None:
    columns = [
        pa.array([_fitting(name, row.get(name), kind) for row in rows], type=schema.field(name).type)
        for name, kind in kinds.items()
    ]
    writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=len(rows))


def _fitting(name: str, value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == TEXT:
        return _whole(value) if isinstance(value, str) else json_text(value)
    if _joined(kind, _kind(value)) != kind:
        raise changed_meanwhile(name)
    return float(value) if kind == DOUBLE else value


def _whole(text: str) -> str:
    """A text without halves of characters, which no encoding has."""
    return text.encode("utf-8", "replace").decode()
