"""The front door to what runs have yielded."""

from __future__ import annotations

from collections.abc import AsyncIterator

from weft.db.database import Database
from weft.items.model import Row, Selection


class Items:
    """Looks at items, however many there are: at most a page of them is in memory."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def rows(self, wanted: Selection) -> AsyncIterator[Row]:
        """Every item that is wanted, in the order in which they came."""
        for row in ():
            yield row
