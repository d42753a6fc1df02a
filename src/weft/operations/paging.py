"""Pages of long lists: each names the cursor of the next one, so that nothing is skipped or listed twice."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec

from weft.errors import Invalid

T = TypeVar("T")
U = TypeVar("U")

PageCursor = Annotated[str, msgspec.Meta(description="The ``next`` of the page before.")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=500, description="How many at most.")]

CursorValue = int | tuple[str, ...] | tuple[int, ...]
"""Where in its order a thing stands: its number, or its names, or its numbers."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a list."""

    items: list[T]
    next: str | None = None
    """Give this as ``after`` for the next page; null on the last one."""

    @staticmethod
    def of(found: Sequence[T], limit: int, place: Callable[[T], CursorValue]) -> Page[T]:
        """The first ``limit`` of what was found; it was looked for one more, to know whether there is a next page."""
        items = list(found[:limit])
        return Page(items=items, next=encode_cursor(place(items[-1])) if len(found) > limit else None)

    def shown(self, document: Callable[[T], U]) -> Page[U]:
        """The same page with each thing as it is shown."""
        return Page(items=[document(each) for each in self.items], next=self.next)


def decode_number(after: str | None) -> int | None:
    """The place that a cursor of numbered things names."""
    return None if after is None else _decode(after, int)


def decode_names(after: str | None, count: int) -> tuple[str, ...] | None:
    """The place that a cursor of named things names."""
    if after is None:
        return None
    found = _decode(after, tuple[str, ...])
    if len(found) != count:
        raise _wrong(after)
    return found


def decode_numbers(after: str | None, count: int) -> tuple[int, ...] | None:
    """The place that a cursor of things with several numbers names."""
    if after is None:
        return None
    found = _decode(after, tuple[int, ...])
    if len(found) != count or not all(0 <= each < 2**63 for each in found):
        raise _wrong(after)
    return found


def _decode(after: str, kind: type[U]) -> U:
    try:
        text = base64.urlsafe_b64decode(after.encode("ascii") + b"==")
        place: Any = msgspec.json.decode(text, type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError) as problem:
        raise _wrong(after) from problem
    if encode_cursor(place) != after or b"\\u0000" in text or (isinstance(place, int) and not 0 <= place < 2**63):
        raise _wrong(after)
    return cast(U, place)


def _wrong(after: str) -> Invalid:
    return Invalid("after", after, "it must be the next of an earlier page")


def encode_cursor(place: CursorValue) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def example_page(item: Any) -> dict[str, Any]:
    return {"items": [item], "next": None}
