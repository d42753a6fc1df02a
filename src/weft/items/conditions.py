"""Whether an item is one of those that are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weft.items.model import Condition

_MISSING = object()


def meets(data: Mapping[str, Any], where: Iterable[Condition]) -> bool:
    return all(_meets(data, each) for each in where)


def _meets(data: Mapping[str, Any], condition: Condition) -> bool:
    if condition.field is None:
        part = condition.value.casefold()
        return any(part in text_of(value).casefold() for value in data.values())
    value = data.get(condition.field, _MISSING)
    if value is _MISSING:
        return False
    text = text_of(value)
    return condition.value in text if condition.part else condition.value == text


def text_of(value: Any) -> str:
    """A text as it is, all else as JSON: ``true``, ``1.5``, ``null``, ``["a"]``."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
