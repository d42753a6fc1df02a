"""The formats that items may be had in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum

from weft.items.export.lines import json, jsonl
from weft.items.export.rows import Fields, Source, gathered


class Format(StrEnum):
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
    Format.JSONL: "application/x-ndjson",
    Format.JSON: "application/json",
    Format.CSV: "text/csv; charset=utf-8",
    Format.XML: "application/xml",
    Format.PARQUET: "application/vnd.apache.parquet",
}


def exported(format: Format, source: Source, fields: Fields = (), *, raw: bool = False) -> AsyncIterator[bytes]:
    """The rows of ``source`` in a format: the named fields in that order, or all.

    CSV and Parquet look at all rows twice where they must know all columns before the first. ``raw`` leaves cells of
    CSV as they are, even where a spreadsheet would take them for formulas. What a format needs is loaded with its first
    use; where that is missing, this is told before the first byte.
    """
    if format is Format.CSV:
        from weft.items.export.table import csv_table

        return gathered(csv_table(source, fields, raw=raw))
    if format is Format.XML:
        from weft.items.export.markup import xml

        return gathered(xml(source, fields))
    if format is Format.PARQUET:
        from weft.items.export.parquet import imported, parquet

        imported()
        return gathered(parquet(source, fields))
    return gathered(json(source, fields) if format is Format.JSON else jsonl(source, fields))
