"""What is not meant well, or not meant at all, is refused with a sentence and a status that is declared."""

from __future__ import annotations

import io

import msgspec

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.growing import TOO_MUCH, growth
from tests.tasks.scene import keep, noop
from weft.http.guards import check_depth

JSON = {"Content-Type": "application/json"}
DEEP = b'{"task": "prices", "params": {"n": ' + b"[" * 1000 + b"]" * 1000 + b"}}"

BODIES = {
    "nothing": (b"", 400),
    "half an object": (b'{"task": "prices"', 400),
    "no JSON": (b"task=prices", 400),
    "no number": (b'{"task": "prices", "priority": NaN}', 400),
    "two documents": (b'{"task": "prices"}{}', 400),
    "bytes that are no text": (b'{"task": "\xff\xfe"}', 400),
    "UTF-16": ('{"task": "prices"}'.encode("utf-16"), 400),
    "half a pair of surrogates": (rb'{"task": "\ud800"}', 400),
    "a key twice": (b'{"task": "prices", "task": "prices"}', 400),
    "a key twice inside": (rb'{"task": "prices", "params": {"a": 1, "b": [{"c": 1, "\u0063": 2}]}}', 400),
    "deep nesting": (DEEP, 400),
    "deep nesting of objects": (b'{"params": ' * 5000 + b"1" + b"}" * 5000, 400),
    "a huge body": (b'{"task": "' + b"x" * (1 << 21) + b'"}', 413),
    "NUL in a text": (rb'{"task": "pri\u0000ces"}', 422),
    "NUL in a key": (rb'{"task": "prices", "params": {"a\u0000": 1}}', 422),
    "a list": (b"[]", 422),
    "null": (b"null", 422),
    "a text for a number": (b'{"task": "prices", "priority": "7"}', 422),
    "a huge number": (b'{"task": "prices", "priority": 1' + b"0" * 400 + b"}", 422),
    "a number out of range": (b'{"task": "prices", "priority": 1e999}', 422),
    "an unknown field": (b'{"task": "prices", "colour": "red"}', 422),
    "a line break after a correlation id": (rb'{"task": "prices", "correlation_id": "a\n"}', 422),
    "a moment without a zone": (b'{"task": "prices", "not_before": "2026-12-01T08:00:00"}', 422),
    "a moment before all others": (b'{"task": "prices", "not_before": "0001-01-01T00:00:00Z"}', 422),
}


@on_sqlite
async def test_a_bad_body_is_refused(admin: Visitor) -> None:
    await keep(admin.app, noop("prices"))
    for what, (data, status) in BODIES.items():
        answer = await admin.call("POST", "/v1/runs", data=io.BytesIO(data), headers=JSON)
        assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json"), what
        assert answer.json["detail"], what
    assert (await admin.get("/v1/runs/counts")).json["ready"] == 0


def test_a_text_that_does_not_end_costs_no_more_than_its_length() -> None:
    for end in ("", "\\", "\\\n"):

        def look(text: str, end: str = end) -> None:
            check_depth(f'{"[]" * 100}"{text}{end}'.encode())

        assert growth(look, '\\"') < TOO_MUCH, end


@on_sqlite
async def test_a_body_of_another_type_is_refused(admin: Visitor) -> None:
    for media_type in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = {"Content-Type": media_type}
        answer = await admin.call("POST", "/v1/runs", data=b'{"task": "prices"}', headers=headers)
        assert (answer.status, answer.json["code"]) == (415, "unsupported_media_type"), media_type


ADDRESSES = {
    "/v1/runs?task=%00": 422,
    "/v1/runs?correlation_id=a%00b": 422,
    "/v1/runs?project=%00": 422,
    "/v1/runs?limit=1e3": 422,
    "/v1/runs?limit=99999999999999999999": 422,
    "/v1/runs?after=" + "A" * 300: 422,
    "/v1/runs?task=%ff%fe": 200,
    "/v1/runs?task=" + "x" * 5000: 200,
    "/v1/runs/0": 404,
    "/v1/runs/-1": 404,
    "/v1/runs/9223372036854775807": 404,
    "/v1/runs/9223372036854775808": 404,
    "/v1/runs/" + "1" * 5000: 404,
    "/v1/webhooks/" + "1" * 5000: 404,
    "/v1/runs/1%00": 422,
    "/v1/ru%0Ans": 404,
    "/v1/runs/1/log%0A": 404,
    "/v1/runs%3F": 404,
    "/v1/runs%23": 404,
    "/v1/runs/%D9%A3": 404,
    "/v1/runs/1/log?attempt=0": 422,
    "/v1/tasks/shop/%00": 422,
    "/v1/tasks/%F0%9F%A6%8A/x": 404,
    "/v1/tasks/shop/" + "x" * 3000: 404,
    "/v1/projects/" + "x" * 3000: 404,
    "/v1/workers/%00": 422,
    "/v1/workers/%F0%9F%A6%8A": 404,
}


async def test_a_bad_address_is_refused(admin: Visitor) -> None:
    for path, status in ADDRESSES.items():
        answer = await admin.get(path)
        assert answer.status == status, (path, answer.data)


HEADERS: list[dict[str, str]] = [
    {"Idempotency-Key": "x" * 201},
    {"Idempotency-Key": ""},
    {"Idempotency-Key": "schlüssel"},
    {"traceparent": "x" * 5000},
    {"If-Match": '"' + "9" * 5000 + '"'},
]


async def test_a_bad_header_breaks_nothing(admin: Visitor) -> None:
    await keep(admin.app, noop("prices"))
    for headers in HEADERS:
        answer = await admin.post("/v1/runs", {"task": "prices"}, headers=headers)
        assert answer.status in (202, 422), (headers, answer.data)
        answer = await admin.call("PUT", "/v1/tasks/default/prices", {"kind": "noop"}, headers=headers)
        assert answer.status in (200, 412), (headers, answer.data)


async def test_texts_of_every_kind_survive_the_way_through_a_database(admin: Visitor) -> None:
    text = "".join(map(chr, (9, 10, 27, 34, 39, 92, 0x7F, 0x85, 0x2028, 0xFFFD, 0xFFFF, 0x1F98A, 0x10FFFF)))
    body = {"kind": "noop", "description": text, "params": {"p": text}}
    made = await admin.call("PUT", "/v1/tasks/shop/texts", body)
    assert made.status == 200, made.data
    assert (await admin.get("/v1/tasks/shop/texts")).json["description"] == text
    started = await admin.post("/v1/tasks/shop/texts/start", {"params": {"p": text * 2}})
    run = (await admin.get(started.headers["Location"])).json
    assert run["spec"]["params"]["p"] == text * 2


async def test_a_number_of_any_size_in_a_spec_breaks_nothing(admin: Visitor) -> None:
    for number in (b"1" + b"0" * 300, b"-9223372036854775809", b"1e308", b"0.1e-300"):
        data = b'{"kind": "noop", "params": {"n": ' + number + b"}}"
        answer = await admin.call("PUT", "/v1/tasks/shop/numbers", data=data, headers=JSON)
        assert answer.status in (200, 422), answer.data
        assert (await admin.get("/v1/tasks")).status == 200
        assert msgspec.json.decode(answer.data)


@on_sqlite
async def test_a_method_that_is_not_taken_is_answered_with_those_that_are(admin: Visitor) -> None:
    answer = await admin.call("DELETE", "/v1/tasks")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    answer = await admin.call("POST", "/v1/tasks/shop/prices")
    assert (answer.status, answer.headers["Allow"]) == (405, "DELETE, GET, HEAD, PUT")
    head = await admin.call("HEAD", "/v1/tasks")
    assert (head.status, head.data) == (200, b"")
