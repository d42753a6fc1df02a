"""The front door to saved views: filters of a list that somebody has given a name, for all to use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.access import store
from weft.access.audit import record_change
from weft.clock import Clock, Moment
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, NotFound

LONGEST_NAME = 60
LONGEST_QUERY = 1000
MOST_VIEWS = 200
"""Views of one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    id: int
    page: str
    name: str
    query: str
    """As it stands in the address of the page, after the question mark."""
    created_by: str
    created_at: Moment


class SavedViews:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def all(self, page: str) -> list[SavedView]:
        """The views of a page, by name."""
        return [_view(row) for row in await self._db.read(lambda tx: store.views_of_page(tx, page))]

    async def get(self, view_id: int) -> SavedView:
        return _found(await self._db.read(lambda tx: store.view(tx, view_id)), view_id)

    async def save(self, page: str, name: str, query: str, *, by: str) -> SavedView:
        """Give a filter a name that no other view of its page has."""
        name = name.strip()
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise Invalid("name", name, f"it must be a text of 1 to {LONGEST_NAME} characters")
        if len(query) > LONGEST_QUERY or not query.isprintable():
            raise Invalid("query", query, f"it must be a text of at most {LONGEST_QUERY} characters")
        values = {"page": page, "name": name, "query": query, "created_by": by, "created_at": self._clock()}

        def work(tx: Transaction) -> SavedView:
            if store.count_views(tx, page) >= MOST_VIEWS:
                raise Conflict(f"{page} has {MOST_VIEWS} views already, and may have no more")
            if not store.add_view(tx, values):
                raise Conflict(f"there is a view {name!r} already; delete it first, or choose another name")
            record_change(tx, after={"name": name, "query": query})
            return _view(store.view_named(tx, page, name))

        return await self._db.transact(work)

    async def delete(self, view_id: int) -> None:
        def work(tx: Transaction) -> None:
            before = _found(store.view(tx, view_id), view_id)
            store.remove_view(tx, view_id)
            record_change(tx, before={"name": before.name, "query": before.query})

        await self._db.transact(work)


def _found(row: Any, view_id: int) -> SavedView:
    if row is None:
        raise NotFound("view", view_id)
    return _view(row)


def _view(row: Any) -> SavedView:
    return SavedView(**row._mapping)
