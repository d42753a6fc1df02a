"""Items of DynamoDB as plain values, and changes of them as expressions. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str]
Item = dict[str, Any]

_NAMES, _VALUES = re.compile(r"#(\w+)"), re.compile(r":(\w+)")


@dataclass(frozen=True, slots=True)
class Same:
    """The value that another attribute of the same item has."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to become of one item, and under which condition."""

    key: Key
    item: Item | None = None
    """All of it, instead of what was there."""
    sets: Mapping[str, Any] = field(default_factory=dict)
    adds: Mapping[str, int] = field(default_factory=dict)
    removes: Iterable[str] = ()
    only_if: str = ""
    """A condition with #names and :values."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Those of the condition."""

    def packed(self, table: str) -> dict[str, Any]:
        place = {"part": pack(self.key[0]), "url_hash": pack(self.key[1])}
        told: dict[str, Any] = {"TableName": table}
        if self.only_if:
            told["ConditionExpression"] = self.only_if
        if self.item is not None:
            told["Item"] = place | {name: pack(value) for name, value in self.item.items()}
            return {"Put": told | parts_of_expression([self.only_if], dict(self.values))}
        update, values = self._update()
        expression = {"Key": place, "UpdateExpression": update}
        return {"Update": told | expression | parts_of_expression([update, self.only_if], values | dict(self.values))}

    def _update(self) -> tuple[str, dict[str, Any]]:
        values = {f"set_{name}": value for name, value in self.sets.items() if not isinstance(value, Same)}
        values |= {f"add_{name}": value for name, value in self.adds.items()}
        sets = [
            f"#{name} = " + (f"#{value.name}" if isinstance(value, Same) else f":set_{name}")
            for name, value in self.sets.items()
        ]
        clauses = {
            "SET": sets,
            "ADD": [f"#{name} :add_{name}" for name in self.adds],
            "REMOVE": [f"#{name}" for name in self.removes],
        }
        return " ".join(f"{verb} {', '.join(each)}" for verb, each in clauses.items() if each), values


def parts_of_expression(expressions: Iterable[str], values: dict[str, Any]) -> dict[str, Any]:
    """The names and values that expressions speak of, as a call gives them."""
    text = " ".join(expressions)
    told: dict[str, Any] = {}
    if names := set(_NAMES.findall(text)):
        told["ExpressionAttributeNames"] = {f"#{name}": name for name in names}
    if used := set(_VALUES.findall(text)):
        told["ExpressionAttributeValues"] = {f":{name}": pack(values[name]) for name in used}
    return told


def pack(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int | float):
        return {"N": repr(value)}
    if isinstance(value, bytes):
        return {"B": value}
    if isinstance(value, frozenset):
        return {"SS": sorted(value)}
    return {"S": value}


def unpack(item: Mapping[str, Mapping[str, Any]]) -> Item:
    return {name: _unpacked(*next(iter(value.items()))) for name, value in item.items()}


def _unpacked(kind: str, value: Any) -> Any:
    if kind == "N":
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return frozenset(value) if kind == "SS" else value
