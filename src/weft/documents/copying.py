"""From what weft works with to what it shows: the same names, moments as texts."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from weft.clock import iso

Time = str
T = TypeVar("T", bound=msgspec.Struct)


def copied(kind: type[T], value: object) -> T:
    return kind(**timed({name: getattr(value, name) for name in kind.__struct_fields__}))


def timed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with moments as texts; a moment is known by its name."""
    return {
        name: iso(value) if name.endswith("_at") or name == "not_before" else value for name, value in fields.items()
    }
