"""What the fields of a struct are for: the texts that stand under them in the source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec


def describe(components: dict[str, Any]) -> None:
    """Put the text of each field into the schema of its struct."""
    known = {name: kind for kind in _structs(msgspec.Struct) for name in (kind.__name__, _full_name(kind))}
    for name, schema in components.items():
        if name in known:
            texts = field_texts(known[name])
            for field, each in schema.get("properties", {}).items():
                if field in texts and "$ref" not in each:
                    each.setdefault("description", texts[field])


@cache
def field_texts(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The text under each field that has one, its own and those that it has from others."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            found |= dict(_texts(each))
    renamed = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    return {renamed[name]: text for name, text in found.items() if name in renamed}


def _texts(kind: type) -> Iterator[tuple[str, str]]:
    try:
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):  # a weft without its sources has fewer words
        return
    assert isinstance(tree, ast.ClassDef)
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield field.target.id, " ".join(value.value.split())


def _structs(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from _structs(each)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
