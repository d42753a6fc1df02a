"""What may be asked of items, by run and by dataset alike: conditions, and where to go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from weft.api.paging import After, Limit, Page, cursor, names
from weft.documents.items import ItemDocument, item_document
from weft.errors import Invalid
from weft.items.items import BEGIN, Cursor, Slice
from weft.items.model import Condition

__all__ = ["After", "Contains", "Limit", "Search", "Where", "conditions", "cursor_of", "item_page"]

Where = Annotated[
    str,
    msgspec.Meta(
        description='Fields and what they must be, as a JSON object: {"price": 12.5}.', examples=['{"price": 12.5}']
    ),
]
Contains = Annotated[
    str,
    msgspec.Meta(
        description='Fields and a text that each must contain, as a JSON object: {"title": "book"}.',
        examples=['{"title": "book"}'],
    ),
]
Search = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=1000, description="A text that any field must contain; capitals count for nothing."
    ),
]

_MUST_BE = "it must be a JSON object of fields and their values"


def conditions(where: str | None, contains: str | None, search: str | None = None) -> tuple[Condition, ...]:
    anywhere = () if search is None else (Condition(None, search, part=True),)
    return (*_conditions("where", where, part=False), *_conditions("contains", contains, part=True), *anywhere)


def _conditions(name: str, text: str | None, *, part: bool) -> list[Condition]:
    if text is None:
        return []
    try:
        told = msgspec.json.decode(text, type=dict[str, str | int | float | bool | None])
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise Invalid(name, text, _MUST_BE) from problem
    return [Condition(field, _text(value), part) for field, value in told.items()]


def _text(value: str | int | float | bool | None) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def cursor_of(after: str | None) -> Cursor:
    """The place of the item after which to go on."""
    found = names(after, 3)
    if found is None:
        return BEGIN
    if not all(each.isascii() and each.isdecimal() and len(each) < 20 and int(each) < 2**63 for each in found):
        raise Invalid("after", after, "it must be the next of an earlier page")
    run_id, attempt, seq = map(int, found)
    if attempt >= 2**31:
        raise Invalid("after", after, "it must be the next of an earlier page")
    return run_id, attempt, seq


def item_page(found: Slice, schema: Mapping[str, Any] | None) -> Page[ItemDocument]:
    """Items with what about each is not as ``schema`` says."""
    following = None if found.next is None else cursor(tuple(map(str, found.next)))
    return Page(items=[item_document(row, schema) for row in found.rows], next=following)
