"""Infers, checks and applies the JSON Schemas of datasets, and describes the fields of a sample of items.

The check is a structural one, by the keywords in ``CHECKED``; whatever else JSON Schema knows is refused when a schema
is set, so that nobody believes it to be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.errors import Invalid

CHECKED = ("type", "required", "properties", "items", "enum", "additionalProperties")
REMARKS = ("$schema", "$id", "$comment", "title", "description", "examples", "default", "format")
"""Keywords that say something to people only."""

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}
DEEPEST = 50

Schema = Mapping[str, Any]


def check_schema(schema: object, where: str = "schema", depth: int = 0) -> None:
    """Refuse a schema that cannot be checked here, with the place where that is."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        raise Invalid(where, schema, f"it must be a JSON Schema: an object, nested at most {DEEPEST} deep")
    for keyword in schema.keys() - {*CHECKED, *REMARKS}:
        raise Invalid(where, keyword, f"of JSON Schema, only {', '.join(CHECKED)} are checked")
    if not isinstance(schema.get("type", ""), str | list) or not all(each in list(TYPES) for each in _types(schema)):
        raise Invalid(f"{where}.type", schema["type"], f"it must be one of {', '.join(TYPES)}, or a list of these")
    if not isinstance(required := schema.get("required", []), list) or not all(isinstance(x, str) for x in required):
        raise Invalid(f"{where}.required", required, "it must be a list of names")
    if not isinstance(schema.get("enum", []), list):
        raise Invalid(f"{where}.enum", schema["enum"], "it must be a list")
    if not isinstance(schema.get("additionalProperties", True), bool):
        raise Invalid(f"{where}.additionalProperties", schema["additionalProperties"], "it must be true or false")
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise Invalid(f"{where}.properties", properties, "it must be an object")
    for name, part in properties.items():
        check_schema(part, f"{where}.properties.{name}", depth + 1)
    if "items" in schema:
        check_schema(schema["items"], f"{where}.items", depth + 1)


def problem_of(value: Any, schema: Schema, where: str = "item") -> str | None:
    """The first record about ``value`` that is not as ``schema`` says, in a sentence; None where all is."""
    types = _types(schema)
    if types and not any(_is(value, name) for name in types):
        return f"{where} is of type {type_of(value)}; it must be {' or '.join(types)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of the values that are allowed"
    if isinstance(value, dict):
        return _problem_of_object(value, schema, where)
    if isinstance(value, list) and "items" in schema:
        found = (problem_of(each, schema["items"], f"{where}[{place}]") for place, each in enumerate(value))
        return next((problem for problem in found if problem), None)
    return None


def _problem_of_object(value: dict[str, Any], schema: Schema, where: str) -> str | None:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} has no {name}"
    properties = schema.get("properties", {})
    for name, part in properties.items():
        if name in value and (problem := problem_of(value[name], part, f"{where}.{name}")):
            return problem
    if schema.get("additionalProperties") is False and (others := value.keys() - properties.keys()):
        return f"{where} has a field {min(others)} that is not in the schema"
    return None


def type_of(value: Any) -> str:
    """The name that JSON Schema has for the type of a value."""
    return next((name for name in TYPES if _is(value, name)), "object")


def field_statistics(items: Iterable[Mapping[str, Any]]) -> tuple[int, dict[str, dict[str, Any]]]:
    """How many items there are, and of each of their fields: in how many it is filled, and of which types it is.

    Neither null nor an empty text, list or object fills a field.
    """
    count, fields = 0, dict[str, dict[str, Any]]()
    for item in items:
        count += 1
        for name, value in item.items():
            field = fields.setdefault(name, {"present": 0, "filled": 0, "types": {}})
            field["present"] += 1
            field["filled"] += value is not None and value not in ("", [], {})
            kind = type_of(value)
            field["types"][kind] = field["types"].get(kind, 0) + 1
    return count, fields


def inferred_schema(count: int, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The schema that says what all these items have in common."""
    properties: dict[str, Any] = {}
    for name, field in fields.items():
        types = sorted(field["types"])
        properties[name] = {"type": types[0] if len(types) == 1 else types}
    required = [name for name, field in fields.items() if field["present"] == count]
    return {"type": "object", "properties": properties, "required": required}


def _types(schema: Schema) -> tuple[str, ...]:
    told = schema.get("type", ())
    return (told,) if isinstance(told, str) else tuple(told)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer())


MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSummary:
    """What a sample of items looks like."""

    sampled: int
    fields: Mapping[str, Mapping[str, Any]]
    """Of each field: in how many items it is present and filled, and of which types."""
    inferred: Mapping[str, Any]
    """The JSON Schema that all of them meet."""
    invalid: int
    """How many are not as the dataset's own schema says."""
    problems: Sequence[str]
    """What is wrong with the first of these."""


def summarize_fields(sample: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None) -> FieldSummary:
    sampled, fields = field_statistics(sample)
    found = (problem_of(each, schema) for each in sample if schema is not None)
    problems = [problem for problem in found if problem is not None]
    return FieldSummary(
        sampled=sampled,
        fields=fields,
        inferred=inferred_schema(sampled, fields),
        invalid=len(problems),
        problems=problems[:MOST_PROBLEMS],
    )
