"""The OpenAPI 3.1 document, made from the operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from weft import __version__
from weft.api.operation import PROBLEMS, Operation
from weft.api.problems import EXAMPLE, TITLES, Problem

REFERENCE = "#/components/schemas/{name}"
TITLE = "weft"
DESCRIPTION = """Runs crawlers: tasks, runs and workers that lose nothing.

Errors are RFC 9457 problem documents with a stable `code`. Lists come in pages: give `next` as `after`.
Send `Idempotency-Key` with what must not happen twice and `If-Match` with what you change."""


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    types = [kind for each in operations for kind in (each.body, each.query, each.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=REFERENCE)
    by_type = dict(zip([id(kind) for kind in [*types, Problem]], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, by_type, components)
    bearer = {"type": "http", "scheme": "bearer", "description": "A key: weft_…"}
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": __version__, "description": DESCRIPTION, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": bearer}},
    }


def _operation(each: Operation, by_type: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    text = (each.handle.__doc__ or "").strip()
    described: dict[str, Any] = {
        "operationId": each.name,
        "tags": [each.name.partition(".")[0]],
        "summary": each.summary,
        "description": " ".join(text.split()),
        "parameters": [*_path_parameters(each), *_query_parameters(each, components), *_headers(each)],
        "responses": _responses(each, by_type),
        "security": [] if each.needs is None else [{"key": []}],
    }
    if each.needs is not None:
        described["x-role"] = each.needs.label
    if each.body is not None:
        media: dict[str, Any] = {"schema": by_type[id(each.body)]}
        if each.example_body is not None:
            media["example"] = each.example_body
        described["requestBody"] = {"required": True, "content": {"application/json": media}}
    return described


def _path_parameters(each: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)(?::\w+)?}", each.path)
    ]


def _query_parameters(each: Operation, components: dict[str, Any]) -> list[dict[str, Any]]:
    if each.query is None:
        return []
    fields: dict[str, Any] = components[each.query.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields.items()]


def _headers(each: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": doc, "schema": {"type": "string"}}
        for name, doc in each.headers.items()
    ]


def _responses(each: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    if each.answer is None and each.media_type == "application/json":
        answers: dict[str, Any] = {"204": {"description": "Done"}}
    else:
        schema = by_type[id(each.answer)] if each.answer is not None else {"type": "string"}
        media = {"schema": schema} | ({"example": each.example} if each.example is not None else {})
        answers = {str(each.status): {"description": each.summary, "content": {each.media_type: media}}}
    titles = dict(TITLES.values())
    for status in PROBLEMS:
        media = {"schema": by_type[id(Problem)], "example": EXAMPLE | {"status": status}}
        answers[str(status)] = {"description": titles[status], "content": {"application/problem+json": media}}
    return answers
