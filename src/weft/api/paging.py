"""Long lists in pages: each names the place where the next one goes on, so nothing is skipped or seen twice."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from weft.errors import Invalid

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a list."""

    items: list[T]
    next: str | None = None
    """Give this as ``after`` for the next page; null on the last one."""

    @staticmethod
    def of(found: Sequence[T], limit: int, place: Callable[[T], int]) -> Page[T]:
        """The first ``limit`` of what was found; it was looked for one more, to know whether there is a next page."""
        items = list(found[:limit])
        return Page(items=items, next=_cursor(place(items[-1])) if len(found) > limit else None)


def page(after: str | None) -> int | None:
    """The place that a cursor names."""
    if after is None:
        return None
    try:
        text = base64.urlsafe_b64decode(after.encode("ascii") + b"==").decode("ascii")
        number = int(text) if text.isdigit() and len(text) < 20 else -1
    except (ValueError, binascii.Error):
        number = -1
    if number < 0 or _cursor(number) != after:
        raise Invalid("after", after, "it must be the next of an earlier page")
    return number


def _cursor(number: int) -> str:
    return base64.urlsafe_b64encode(str(number).encode()).decode().rstrip("=")
