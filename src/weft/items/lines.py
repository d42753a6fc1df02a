"""Reads the lines that attempts write: each is an item, or is refused and counted, so that none holds up the rest."""

from __future__ import annotations

import json
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec

from weft.clock import Moment

LARGEST_ITEM = 16_000_000
"""Bytes that an item may take as a database is told of it; MariaDB keeps no more in one piece."""

DEEPEST = 200
"""How deep an item may be nested: whoever reads it later may stand deeper than we do, and could not."""

LATEST: Moment = 2**53
"""No item is younger than that: it is the year 2255."""

Data = dict[str, Any]
Read = tuple[Moment, str, str, Data]
"""When it was yielded (0: unknown), its JSON as it came, the fingerprint of that, and what it says."""


class Line(msgspec.Struct):
    item: msgspec.Raw
    at: int = 0


_line = msgspec.json.Decoder(Line).decode
_data = msgspec.json.Decoder(dict[str, Any]).decode
_canonical = msgspec.json.Encoder(order="deterministic").encode


def read_lines(lines: bytes) -> list[Read | None]:
    """What each line says; None for one that is no item."""
    return [_read(line) for line in lines.removesuffix(b"\n").split(b"\n")] if lines else []


def fingerprint(value: Any) -> str:
    """The same for values that are equal as JSON, whatever the order of their fields."""
    return blake2b(_canonical(value), digest_size=16).hexdigest()


def _read(line: bytes) -> Read | None:
    if len(line) > LARGEST_ITEM // 2 and _written_out(line) > LARGEST_ITEM:
        return None
    try:
        found = _line(line)
        data = _data(found.item)
        if line.count(b"[") + line.count(b"{") > DEEPEST and _is_too_deep(data):
            return None
        if b"\\u0000" not in line:
            text = str(found.item, "utf-8")
            return (found.at if 0 < found.at < LATEST else 0, text, fingerprint(data), data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    except RecursionError:
        return None
    return _read_with_care(line)


def _written_out(line: bytes) -> int:
    """How long the line is as a text in SQL."""
    return len(line) + sum(line.count(each) for each in b"\"\\'")


def _read_with_care(line: bytes) -> Read | None:
    """The same for a line with something in it that not every database keeps: that is replaced."""
    try:
        found = json.loads(line.decode("utf-8", "replace"), strict=False, parse_constant=lambda name: None)
        data = _clean(found["item"])
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    if not isinstance(data, dict) or _is_too_deep(data):
        return None
    at = found.get("at")
    known = isinstance(at, int) and 0 < at < LATEST
    return (at if known else 0, text, fingerprint(data), data)


def _is_too_deep(data: Data) -> bool:
    level: list[Any] = [data]
    for _ in range(DEEPEST):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for group in inside for each in group if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def _clean(value: Any) -> Any:
    """Without NUL, half characters and numbers that are none."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
