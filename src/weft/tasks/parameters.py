"""Parameters: their defaults, what a start may give, and where their values go in a spec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.access.secrets import REFERENCE
from weft.errors import Invalid

PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
UNTOUCHED = {"script"}
"""Fields that are code: values reach them as environment variables, never as text to be executed."""
TEXTS = {"argv", "interpreter", "env", "headers"}
"""Fields that hold nothing but texts: a number becomes its text there."""

NAMED_BY_TASK = "only the task itself may name a secret"


def resolve(defaults: Mapping[str, Any], given: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The value of every parameter; what is given must be known and of its default's type."""
    for name, value in given.items():
        if name not in defaults:
            known = ", ".join(sorted(defaults)) or "none"
            raise Invalid(f"parameter of {task}", name, f"the task has these: {known}")
        if "{secret:" in str(value):
            raise Invalid(f"parameter {name} of {task}", value, NAMED_BY_TASK)
    values = {
        name: _typed(name, given[name], default) if name in given else default for name, default in defaults.items()
    }
    for name, value in values.items():
        if value is None:
            raise Invalid(f"parameter {name} of {task}", None, "it has no default, so it must be given")
    return values


def fill(spec: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with every ``{{name}}`` in its texts replaced by that parameter's value.

    A text that is one name and nothing else becomes the value itself, with its type.
    """
    return {key: part if key in UNTOUCHED else _filled(part, values, text=key in TEXTS) for key, part in spec.items()}


def from_text(text: str, default: Any) -> Any:
    """A value as typed on a command line, in the type of the default."""
    if isinstance(default, str):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _typed(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if default is not None and type(value) is not type(default):
        raise Invalid(f"parameter {name}", value, f"it must be of the type of its default, {_kind(default)}")
    return value


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "a table")


def _filled(part: Any, values: Mapping[str, Any], *, text: bool) -> Any:
    if isinstance(part, str):
        whole = None if text else PLACEHOLDER.fullmatch(part)
        if whole and whole[1] in values:
            return values[whole[1]]
        return _put_together(part, values)
    if isinstance(part, Mapping):
        return {key: _filled(each, values, text=text) for key, each in part.items()}
    if isinstance(part, list | tuple):
        return [_filled(each, values, text=text) for each in part]
    return part


def _put_together(part: str, values: Mapping[str, Any]) -> str:
    """The text with its parameters; together they may name no secret that neither it nor one of them does."""
    put = PLACEHOLDER.sub(lambda found: _text(found, values), part)
    if named := set(REFERENCE.findall(put)):
        named -= {name for text in (part, *map(str, values.values())) for name in REFERENCE.findall(text)}
    if named:
        raise Invalid("parameters", f"{{{{secret:{min(named)}}}}} together", NAMED_BY_TASK)
    return put


def _text(found: re.Match[str], values: Mapping[str, Any]) -> str:
    if found[1] not in values:
        raise Invalid("placeholder", found[0], f"the task has these parameters: {', '.join(sorted(values)) or 'none'}")
    value = values[found[1]]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
