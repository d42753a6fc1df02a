"""The OpenAPI 3.1 document, made from the operations; descriptions of fields come from their source."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from weft import __version__
from weft.operations.operation import PROBLEMS, Operation
from weft.operations.problems import TITLES, Problem
from weft.operations.sessions import SESSION_COOKIE


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


REFERENCE = "#/components/schemas/{name}"
TITLE = "weft"
DESCRIPTION = """Runs crawlers: tasks, runs and workers that lose nothing.

Errors are RFC 9457 problem documents with a stable `code`. Lists come in pages: give `next` as `after`.
Send `Idempotency-Key` with what must not happen twice and `If-Match` with what you change."""

EXAMPLES: dict[str, Any] = {"project": "shop", "name": "prices", "attempt": 1, "seconds": 10}
"""Of path parameters; those that end in ``_id`` are numbers."""

SECURITY_SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "A key: weft_…"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "Of somebody who has logged in.",
    },
}


def document(operations: Sequence[Operation[Any]]) -> dict[str, Any]:
    types = [
        kind
        for each in operations
        for kind in (each.body, each.query, each.answer, *each.also.values())
        if kind is not None
    ]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=REFERENCE)
    describe(components)
    by_type = dict(zip([id(kind) for kind in [*types, Problem]], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        path = re.sub(r"{(\w+):\w+}", r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, by_type, components)
    for each in operations:
        if each.query is not None:
            components.pop(_schema_name(by_type[id(each.query)]), None)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": __version__, "description": DESCRIPTION, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {f"problem_{status}": _problem(status, by_type[id(Problem)]) for status in PROBLEMS},
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _operation(each: Operation[Any], by_type: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    text = (each.handle.__doc__ or "").strip()
    described: dict[str, Any] = {
        "operationId": each.name,
        "tags": [each.name.partition(".")[0]],
        "summary": each.summary,
        "description": " ".join(text.split()),
        "parameters": [*_path_parameters(each), *_query_parameters(each, by_type, components), *_headers(each)],
        "responses": _responses(each, by_type),
        "security": [] if each.needs is None else [{name: []} for name in _credentials(each)],
    }
    if each.needs is not None:
        described["x-role"] = each.needs.label
    if each.body is not None:
        media: dict[str, Any] = {"schema": by_type[id(each.body)]}
        if each.example_body is not None:
            media["example"] = each.example_body
        described["requestBody"] = {"required": True, "content": {"application/json": media}}
    elif each.takes:
        described["requestBody"] = {
            "required": True,
            "content": {each.takes: {"schema": {"contentMediaType": each.takes}}},
        }
    return described


def _credentials(each: Operation[Any]) -> list[str]:
    return ["session"] if each.callers == {"user"} else ["key", "session"] if "user" in each.callers else ["key"]


def _path_parameters(each: Operation[Any]) -> list[dict[str, Any]]:
    return [_path_parameter(name) for name in re.findall(r"{(\w+)(?::\w+)?}", each.path)]


def _path_parameter(name: str) -> dict[str, Any]:
    is_number = name.endswith("_id") or isinstance(EXAMPLES.get(name), int)
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if is_number:
        schema = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
    example = EXAMPLES.get(name, 7 if is_number else name)
    return {"name": name, "in": "path", "required": True, "schema": schema, "example": example}


def _query_parameters(
    each: Operation[Any], by_type: dict[int, Any], components: dict[str, Any]
) -> list[dict[str, Any]]:
    if each.query is None:
        return []
    fields: dict[str, Any] = components[_schema_name(by_type[id(each.query)])]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _given(schema)} for name, schema in fields.items()
    ]


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """What a parameter is where it is given at all: an address cannot say null."""
    if "anyOf" not in schema:
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    kinds = [kind for kind in schema["anyOf"] if kind != {"type": "null"}]
    return rest | kinds[0] if len(kinds) == 1 else rest | {"anyOf": kinds}


def _headers(each: Operation[Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": doc, "schema": {"type": "string"}}
        for name, doc in each.headers.items()
    ]


def _responses(each: Operation[Any], by_type: dict[int, Any]) -> dict[str, Any]:
    problems: dict[str, Any] = {
        str(status): {"$ref": f"#/components/responses/problem_{status}"} for status in PROBLEMS
    }
    for status, kind in each.also.items():
        content = {"application/json": {"schema": by_type[id(kind)]}}
        problems[str(status)] = {"description": each.summary, "content": content}
    if each.answer is None and each.media_type == "application/json":
        return {"204": {"description": "Done"}} | problems
    schema = by_type[id(each.answer)] if each.answer is not None else {"type": "string"}
    media = {"schema": schema} | ({"example": each.example} if each.example is not None else {})
    answer: dict[str, Any] = {"description": each.summary, "content": {each.media_type: media}}
    if each.answer_headers:
        told = each.answer_headers.items()
        answer["headers"] = {name: {"description": doc, "schema": {"type": "string"}} for name, doc in told}
    return {str(each.status): answer} | problems


def _problem(status: int, schema: Any) -> dict[str, Any]:
    code, title = next((code, title) for code, (number, title) in TITLES.items() if number == status)
    example = {
        "type": f"about:blank#{code}",
        "title": title,
        "status": status,
        "detail": "one sentence: what, which, and what is allowed",
        "code": code,
        "request_id": "5f0c",
    }
    return {"description": title, "content": {"application/problem+json": {"schema": schema, "example": example}}}


def _schema_name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"].rpartition("/")[2])
