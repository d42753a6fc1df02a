"""The items that somebody wants, as rows to export."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from weft.clock import Moment, iso
from weft.items.export.rows import Row, Source
from weft.items.model import Row as Item


def source_of(items: Callable[[], AsyncIterator[Item]], *, ids: bool) -> Source:
    """The fields of each item, with its ids in front where they are wanted."""

    async def rows() -> AsyncIterator[Row]:
        async for item in items():
            yield with_ids(item, item.data) if ids else item.data

    return rows


def with_ids(item: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Fields with the ids of their item in front; a field that is called like an id gives way to it."""
    at: Moment = item.at
    ids = {"weft_run": item.run_id, "weft_attempt": item.attempt, "weft_seq": item.seq}
    ids |= {"weft_thing": item.thing_id, "weft_at": iso(at)}
    return {**ids, **data, **ids}
