"""The items of a job as Scrapy's own feed of JSON lines would have them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence

from weft.items.items import BEGIN, Cursor, Items
from weft.items.model import Row, Selection


class ItemFile:
    """What a run has yielded, an item a line, in the order in which it was yielded."""

    BEGIN: Cursor = BEGIN

    def __init__(self, items: Items, run_id: int) -> None:
        self._items, self._wanted = items, Selection(run_id=run_id)

    async def forwards(self, place: Cursor = BEGIN) -> AsyncGenerator[tuple[bytes, Cursor | None], None]:
        """Lines from a place on in pieces, each with the place where the next begins."""
        after: Cursor | None = place
        while after is not None:
            found = await self._items.page(self._wanted, after)
            after = found.next
            if found.rows:
                yield await asyncio.to_thread(lines_of, found.rows), after


def lines_of(rows: Sequence[Row]) -> bytes:
    return "".join([json.dumps(row.data) + "\n" for row in rows]).encode()
