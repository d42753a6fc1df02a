"""CSV. A cell that a spreadsheet would take for a formula gets an apostrophe in front, unless raw cells are wanted."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from typing import Any

from weft.items.export.rows import SCALARS, Fields, Source, fields_of, json_text, refuse_others

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


async def csv_table(source: Source, fields: Fields, *, raw: bool = False) -> AsyncIterator[bytes]:
    """A header and a line a row. Where no fields are named, all rows are looked through for them first."""
    columns = fields or await fields_of(source())
    line = io.StringIO()
    writer = csv.writer(line)

    def written(cells: list[Any]) -> bytes:
        line.seek(0)
        line.truncate()
        writer.writerow(cells)
        return line.getvalue().encode("utf-8", "replace")

    if columns:
        yield written([cell(name, raw=raw) for name in columns])
    async for row in source():
        if not fields:
            refuse_others(row, columns)
        yield written([cell(row.get(name), raw=raw) for name in columns])


def cell(value: Any, *, raw: bool = False) -> Any:
    """A value as a cell: nothing for null, JSON for what is nested. A number is none of the formulas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, SCALARS):
        value = json_text(value)
    if isinstance(value, str) and not raw and value.startswith(FORMULA):
        return f"'{value}"
    return value
