"""What a writer is given, and what its bytes are gathered in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from weft.errors import NOT_SHOWN, Conflict, Invalid

Row = Mapping[str, Any]
Rows = AsyncIterator[Row]
Source = Callable[[], Rows]
"""Gives the rows from the first on, each time that it is called."""

Fields = tuple[str, ...]
PIECE_BYTES = 65_536
MOST_COLUMNS = 5_000
"""A table with more is of no use to anybody, and each of its rows would have all of them."""
SCALARS = (str, int, float, bool, type(None))


async def gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in fewer pieces."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


async def fields_of(rows: Rows) -> Fields:
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


def chosen(row: Row, fields: Fields) -> Row:
    """Those fields of a row that it has; all of them where none are named."""
    return {name: row[name] for name in fields if name in row} if fields else row


def refuse_others(row: Row, known: Iterable[str]) -> None:
    """Refuse a row that would lose a field."""
    for name in row.keys() - set(known):
        raise changed_meanwhile(name)


def changed_meanwhile(field: str) -> Conflict:
    """The error for a column that began without knowing what a later row has for it."""
    return Conflict(f"field {field!r} changed while it was exported; name the fields that you want, or try again")


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
