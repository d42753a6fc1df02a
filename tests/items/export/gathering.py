"""Rows for the tests of exports, and what became of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from weft.items.exporters import ExportFormat, export


def source_of(rows: Sequence[dict[str, Any]]) -> Callable[[], AsyncIterator[dict[str, Any]]]:
    async def source() -> AsyncIterator[dict[str, Any]]:
        for row in rows:
            yield row

    return source


async def written(
    format: ExportFormat, rows: Sequence[dict[str, Any]], fields: tuple[str, ...] = (), *, raw: bool = False
) -> bytes:
    return b"".join([piece async for piece in export(format, source_of(rows), fields, raw=raw)])
