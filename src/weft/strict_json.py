"""JSON that others send: refused where an object has a key twice, since readers differ in which of them counts."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def decode(data: bytes | str, type: Any = Any) -> Any:
    """As ``msgspec.json.decode``, which takes the last of two values of one key; here that is a ``DecodeError``."""
    found = msgspec.json.decode(data, type=type)
    _KEYS.decode(data if isinstance(data, str) else data.decode())
    return found


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) == len(pairs):
        return
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise msgspec.DecodeError(f"the key {twice!r} is twice in one object")


_KEYS = json.JSONDecoder(strict=False, parse_int=len, parse_float=len, object_pairs_hook=_refuse_twice)
"""Makes nothing of what it reads: numbers may have any length."""
