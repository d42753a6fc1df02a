"""The OpenAPI document and the page made from it say what the operations do."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from tests.api.acting import Visitor
from tests.cases import for_each
from tests.conftest import on_sqlite
from weft.http.docs_page import curl, page_of
from weft.http.openapi import document
from weft.http.routes import operations
from weft.operations.operation import PROBLEMS, Operation
from weft.operations.problems import TITLES

EVERY = operations()
REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference" / "api.md"


@cache
def described_api() -> dict[str, Any]:
    return document(EVERY)


for_each_operation = for_each("operation", EVERY, ids=lambda each: each.name)


@for_each_operation
def test_an_answer_is_shown_by_an_example_of_its_type(operation: Operation[Any]) -> None:
    has_answer = operation.answer is not None or operation.media_type != "application/json"
    assert (operation.example is not None) == has_answer, f"{operation.name}: example= is for what is answered"
    if operation.answer is not None:
        msgspec.convert(operation.example, operation.answer)


@for_each_operation
def test_a_body_is_shown_by_an_example_of_its_type(operation: Operation[Any]) -> None:
    assert (operation.example_body is not None) == (operation.body is not None), operation.name
    if operation.body is not None:
        msgspec.json.decode(msgspec.json.encode(operation.example_body), type=operation.body)


@for_each_operation
def test_every_status_is_declared(operation: Operation[Any]) -> None:
    described = described_api()["paths"][re.sub(r":\w+}", "}", operation.path)][operation.method.lower()]
    declared = {int(status) for status in described["responses"]}
    assert declared >= set(PROBLEMS)
    own = declared - set(PROBLEMS)
    assert own == {operation.status if operation.answer or operation.media_type != "application/json" else 204}
    assert described["summary"].endswith((".", "?")), f"{operation.name} is described by a sentence"
    assert described.get("x-role") == (operation.needs and operation.needs.label)


def test_no_two_operations_have_one_name_or_one_address() -> None:
    assert len({each.name for each in EVERY}) == len(EVERY)
    assert len({(each.method, each.path) for each in EVERY}) == len(EVERY)


def test_every_reference_leads_somewhere() -> None:
    text = msgspec.json.encode(described_api()).decode()
    references = set(re.findall(r'"\$ref":"#/([^"]+)"', text))
    assert references
    assert text.count('"$ref":') == text.count('"$ref":"#/')
    assert [each for each in references if not leads_somewhere(each)] == []


def leads_somewhere(reference: str) -> bool:
    found: Any = described_api()
    for step in reference.split("/"):
        found = found.get(step, {})
    return bool(found)


@on_sqlite
async def test_the_document_and_the_page_need_no_key(nobody: Visitor) -> None:
    answer = await nobody.get("/openapi.json")
    assert (answer.status, answer.json["openapi"]) == (200, "3.1.0")
    assert set(answer.json["paths"]) == set(described_api()["paths"])
    page = await nobody.get("/docs")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    [style] = re.findall(r"<style>(.*?)</style>", page.data.decode(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = page.headers["Content-Security-Policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "prefers-color-scheme: dark" in style


def test_a_field_is_described_by_the_text_under_it() -> None:
    schemas = described_api()["components"]["schemas"]
    assert schemas["RunInput"]["properties"]["name"]["description"].startswith("Name of a run of a kind in lists")
    assert schemas["RunInput"]["properties"]["not_before"]["description"].startswith("When it may start")
    assert schemas["BackfillInput"]["properties"]["to"]["description"].startswith("The moment after the last")
    parameters = described_api()["paths"]["/v1/runs/{run_id}/log"]["get"]["parameters"]
    [attempt] = [each for each in parameters if each["name"] == "attempt"]
    assert attempt["schema"]["description"] == "Default: the newest."


class Tags(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names.add(tag)
        self.ids.add(given.get("id") or "")
        self.links.add(given.get("href") or given.get("src") or "")


def test_the_page_has_every_operation_and_nothing_from_elsewhere() -> None:
    page = page_of(described_api())
    tags = Tags(page)
    assert "script" not in tags.names
    assert {each.name for each in EVERY} <= tags.ids
    assert all(link[1:] in tags.ids for link in tags.links if link.startswith("#"))
    assert {link for link in tags.links if not link.startswith("#")} == {"", "/openapi.json"}
    for each in EVERY:
        described = described_api()["paths"][re.sub(r":\w+}", "}", each.path)][each.method.lower()]
        assert f"#{each.name}" in page
        assert "{" not in curl(each.method, each.path, described).rpartition(" ")[2]


def test_the_page_escapes_what_it_shows() -> None:
    described = msgspec.json.decode(msgspec.json.encode(described_api()))
    described["paths"]["/v1/runs"]["get"]["description"] = "<script>alert(1)</script>"
    assert "script" not in Tags(page_of(described)).names


def test_the_reference_has_every_operation() -> None:
    expected = [row(each) for each in EVERY]
    found = re.findall(r"^\| `(?:GET|POST|PUT|PATCH|DELETE)` .*$", REFERENCE.read_text(), re.MULTILINE)
    assert found == expected, "docs/reference/api.md should have these rows:\n" + "\n".join(expected)


def test_the_reference_has_every_code_of_a_problem() -> None:
    expected = [f"| `{code}` | {status} | {title} |" for code, (status, title) in TITLES.items()]
    found = re.findall(r"^\| `\w+` \| \d{3} \| .*$", REFERENCE.read_text(), re.MULTILINE)
    assert found == expected, "docs/reference/api.md should have these rows:\n" + "\n".join(expected)


def row(each: Operation[Any]) -> str:
    role = each.needs.label if each.needs is not None else "none"
    by = "" if each.callers == {"user", "key"} else f" ({', '.join(sorted(each.callers))} only)"
    return f"| `{each.method}` | `{each.path}` | {role}{by} | {each.summary} |"
