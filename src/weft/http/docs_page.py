"""The OpenAPI document as a page for people."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from weft import __version__
from weft.http.guards import SECURITY_HEADERS
from weft.http.openapi import document
from weft.operations.operation import Call, Operations

operations = Operations("docs", prefix="")

STYLE = Path(__file__).with_name("docs_page.css").read_text(encoding="utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = SECURITY_HEADERS["Content-Security-Policy"] + f"; style-src 'sha256-{STYLE_HASH}'"


@operations.get(
    "/openapi.json",
    needs=None,
    answer=dict[str, Any],
    example={"openapi": "3.1.0", "info": {"title": "weft", "version": __version__}},
)
async def openapi(call: Call) -> Response:
    """Give every operation as an OpenAPI 3.1 document."""
    return Response(_document()[1], media_type="application/json")


@operations.get("/docs", needs=None, media_type="text/html", example="<!doctype html>…")
async def page(call: Call) -> Response:
    """Show every operation as a page for people."""
    return Response(_page(), media_type="text/html", headers={"Content-Security-Policy": POLICY})


@cache
def _document() -> tuple[dict[str, Any], bytes]:
    from weft.http.routes import operations as every  # it lists these two as well

    described = document(every())
    return described, msgspec.json.encode(described)


@cache
def _page() -> bytes:
    return page_of(_document()[0]).encode()


def page_of(described: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    nouns: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in described["paths"].items():
        for method, each in methods.items():
            nouns.setdefault(each["tags"][0], []).append((method.upper(), path, each))
    schemas = described["components"]["schemas"]
    parts = [
        f"<h1>weft</h1><p class=faint>Version {escape(described['info']['version'])}. "
        'Also as <a href="/openapi.json">OpenAPI 3.1</a>.</p>',
        *(f"<p>{_prose(text)}</p>" for text in described["info"]["description"].split("\n\n")),
        f"<nav aria-label=Operations><ul>{''.join(_contents(nouns))}</ul></nav>",
    ]
    for noun, listed in nouns.items():
        parts.append(f"<h2 id={noun}>{_words(noun)}</h2>")
        parts += [_article(*each) for each in listed]
    parts.append("<h2 id=schemas>Schemas</h2>")
    parts += [_schema_article(name, schema) for name, schema in sorted(schemas.items())]
    return (
        '<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width">'
        f"<title>The API of weft</title><style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>"
    )


def _words(noun: str) -> str:
    return noun.replace("_", " ")


def _contents(nouns: dict[str, list[tuple[str, str, dict[str, Any]]]]) -> Iterable[str]:
    for noun, listed in nouns.items():
        yield f'<li class=noun><a href="#{noun}">{_words(noun)}</a></li>'
        for method, path, each in listed:
            yield f'<li><a href="#{each["operationId"]}">{method} {escape(path)}</a></li>'


def _article(method: str, path: str, each: dict[str, Any]) -> str:
    role = f"role {each['x-role']}" if "x-role" in each else "no key"
    status, answer = next(iter(each["responses"].items()))
    [(media_type, media)] = answer.get("content", {"": {}}).items()
    body = each.get("requestBody", {}).get("content", {}).get("application/json")
    parts = [
        f'<span class=role>{role}</span><h3>{method} {escape(path)} <a href="#{each["operationId"]}">#</a></h3>',
        f"<p>{_prose(each['description'])}</p>",
        _parameters(each["parameters"]),
    ]
    if body:
        parts += [f"<p>Body: {_type(body['schema'])}</p>", _example(body.get("example"))]
    shown = _type(media["schema"]) if media else "nothing"
    parts += [f"<p>Answer: {status}, {shown}{f' ({media_type})' if media else ''}</p>"]
    if media:
        parts.append(f"<details><summary>An answer</summary>{_example(media.get('example'))}</details>")
    problems = ", ".join(code for code in each["responses"] if code != status)
    parts += [f"<p class=faint>Or a problem: {problems}</p>", f"<pre>{escape(curl(method, path, each))}</pre>"]
    return f'<article id="{each["operationId"]}">{"".join(parts)}</article>'


def curl(method: str, path: str, each: dict[str, Any]) -> str:
    """A line for a shell that makes the call."""
    for parameter in each["parameters"]:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
    line = "curl" if method == "GET" else f"curl -X {method}"
    if each["security"]:
        line += ' -H "Authorization: Bearer $WEFT_KEY"'
    content = each.get("requestBody", {}).get("content", {})
    if "application/octet-stream" in content:
        line += " -H 'Content-Type: application/octet-stream' --data-binary @archive"
    elif body := each.get("requestBody"):
        example = msgspec.json.encode(body["content"]["application/json"].get("example", {})).decode()
        quoted = example.replace("'", "'\\''")
        line += f" -H 'Content-Type: application/json' -d '{quoted}'"
    return f"{line} http://localhost:6800{path}"


def _parameters(listed: list[dict[str, Any]]) -> str:
    if not listed:
        return ""
    rows = (
        f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{_type(each['schema'])}"
        f"<td>{_prose(each.get('description', '') or each['schema'].get('description', ''))}"
        for each in listed
    )
    return f"<table><tr><th>Parameter<th>In<th>Type<th>What{''.join(rows)}</table>"


def _schema_article(name: str, schema: dict[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = (
        f"<tr><td><code>{escape(field)}</code><td>{_type(each)}<td>{_default(field, each, needed)}"
        f"<td>{_prose(each.get('description', ''))}"
        for field, each in schema.get("properties", {}).items()
    )
    table = f"<table><tr><th>Field<th>Type<th>Default<th>What{''.join(rows)}</table>" if "properties" in schema else ""
    values = " ".join(f"<code>{escape(str(each))}</code>" for each in schema.get("enum", ()))
    about = _prose(schema.get("description", ""))
    return f'<article id="schema-{escape(name)}"><h3>{escape(name)}</h3><p>{about} {values}</p>{table}</article>'


def _default(field: str, schema: dict[str, Any], needed: set[str]) -> str:
    if field in needed:
        return "needed"
    return f"<code>{escape(msgspec.json.encode(schema['default']).decode())}</code>" if "default" in schema else ""


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words, with a link to what it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{escape(name)}">{escape(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(each))}</code>" for each in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_type(schema['items'])}"
    limits = [f"{word} {schema[name]}" for name, word in LIMITS.items() if name in schema]
    return escape(" ".join([schema.get("format", kind), *limits]))


LIMITS = {"minimum": "from", "maximum": "to", "minLength": "of at least", "maxLength": "of at most"}


def _example(example: Any) -> str:
    if example is None:
        return ""
    text = example if isinstance(example, str) else msgspec.json.format(msgspec.json.encode(example)).decode()
    return f"<pre>{escape(text)}</pre>"


def _prose(text: str) -> str:
    """Plain text, with what stands between backticks as code."""
    pieces = escape(text).replace("``", "`").split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
