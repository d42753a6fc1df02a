"""JSON: a line a row, or one list."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from weft.items.export.rows import Fields, Source, chosen


async def jsonl(source: Source, fields: Fields) -> AsyncIterator[bytes]:
    async for row in source():
        yield msgspec.json.encode(chosen(row, fields)) + b"\n"


async def json(source: Source, fields: Fields) -> AsyncIterator[bytes]:
    """The closing bracket comes last, so that a list that was cut off is no JSON."""
    before = b"[\n"
    async for row in source():
        yield before + msgspec.json.encode(chosen(row, fields))
        before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"
