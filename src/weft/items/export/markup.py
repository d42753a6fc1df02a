"""XML: an element a row, an element a field."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from weft.items.export.rows import Fields, Source, chosen, json_text

DEEPEST = 32
"""What is nested deeper is written as JSON."""

_NOT_ALLOWED = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)
_BEGINS_NAME = re.compile(r"(?!xml)[A-Za-z_]", re.ASCII | re.IGNORECASE)
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})
"""A reader would take a return for the end of a line otherwise."""

_ESCAPED_IN_ATTRIBUTES = _ESCAPED | str.maketrans({"\t": "&#9;", "\n": "&#10;"})


async def xml(source: Source, fields: Fields) -> AsyncIterator[bytes]:
    yield b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n'
    async for row in source():
        yield (element("item", chosen(row, fields)) + "\n").encode()
    yield b"</items>\n"


def element(name: str, value: Any, depth: int = 0) -> str:
    """A value as an element; where its name had to be changed, an attribute tells the real one."""
    tag = valid_name(name)
    attributes = "" if tag == name else f' name="{allowed(name).translate(_ESCAPED_IN_ATTRIBUTES)}"'
    if value is None:
        return f'<{tag}{attributes} nil="true"/>'
    return f"<{tag}{attributes}>{_content(value, depth)}</{tag}>"


def valid_name(name: str) -> str:
    """A name that an element may have: letters, digits, ``_``, ``.`` and ``-``."""
    valid = _NOT_IN_NAMES.sub("_", name)
    return valid if _BEGINS_NAME.match(valid) else f"_{valid}"


def allowed(text: str) -> str:
    """A text without the characters that XML cannot have."""
    return _NOT_ALLOWED.sub("", text)


def _content(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return allowed(value).translate(_ESCAPED)
    if isinstance(value, Mapping | list | tuple) and depth < DEEPEST:
        parts = value.items() if isinstance(value, Mapping) else (("value", each) for each in value)
        return "".join(element(str(name), each, depth + 1) for name, each in parts)
    return allowed(json_text(value)).translate(_ESCAPED)
