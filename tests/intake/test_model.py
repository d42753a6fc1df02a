"""What a message may look like, and the one sentence that says what is wrong with it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from tests.intake.ordering import body, enveloped, message
from weft.envelope import Envelope
from weft.errors import Invalid
from weft.intake.model import LARGEST_BODY, Submission, check_reply_address, run_of, submission_of
from weft.intake.receiver import REPLY_ACTION

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def refusal(text: bytes) -> str:
    with pytest.raises(Invalid) as refused:
        submission_of(text)
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


def test_a_message_is_understood_with_all_its_fields() -> None:
    order = submission_of(
        body("t-9", settings={"DOWNLOAD_DELAY": 2}, args={"country": "de"}, priority=7, status="pending")
    )
    assert (order.task_id, order.project, order.spider, order.priority) == ("t-9", "shop", "prices", 7)
    assert (order.settings, order.args) == ({"DOWNLOAD_DELAY": 2}, {"country": "de"})


def test_what_may_be_left_out_may_also_be_null() -> None:
    assert submission_of(body()) == submission_of(body(settings=None, args=None, priority=None))


def test_fields_that_nobody_knows_are_ignored_and_named_without_their_values() -> None:
    order = submission_of(body(retries=3, created_by="crm"))
    [note] = order.notes
    assert note == "the message has fields that weft does not know, which were ignored: 'created_by', 'retries'"
    assert replace(order, notes=()) == submission_of(body())
    [many] = submission_of(body("t-1", **{f"field {number:03} {'x' * 100}\n": 1 for number in range(100)})).notes
    assert many.endswith(" and 80 more")
    assert len(many) < 1500
    assert "\n" not in many


@for_each(("asked", "taken"), [(-1, 0), (-(10**30), 0), (1001, 1000), (10**300, 1000), (1e300, 1000), (7.0, 7)])
def test_a_priority_that_there_is_not_is_the_nearest_one(asked: float, taken: int) -> None:
    order = submission_of(body(priority=asked))
    assert order.priority == taken
    note = f"the priority of the message is not from 0 to 1000; {taken} was taken"
    assert order.notes == (() if asked == taken else (note,))


@for_each(
    ("fields", "version"),
    [
        ({"_version": "1_0"}, "1_0"),
        ({"version": "1.0"}, "1.0"),
        ({"args": {"_version": "1.0"}}, "1.0"),
        ({"_version": 1794742186}, "1794742186"),
        ({"_version": "1.0", "version": "1.0", "args": {"_version": "1.0"}}, "1.0"),
        ({"_version": None, "version": ""}, None),
    ],
)
def test_a_version_has_scrapyds_name_or_ours(fields: dict[str, Any], version: str | None) -> None:
    order = submission_of(body(**fields))
    assert (order.version, order.notes) == (version, ())
    spec = run_of(order).spec.spec
    assert (spec.get("version"), spec["args"].get("_version")) == (version, version)


def test_the_task_id_is_the_job_whatever_the_arguments_say() -> None:
    order = submission_of(body("t-1", args={"_job": "another"}))
    assert run_of(order).spec.spec["args"] == {"_job": "t-1"}
    assert order.notes == ("the argument _job of the message was ignored; it is the task_id",)


def test_an_envelope_with_the_same_payload_is_the_same_order() -> None:
    order = submission_of(enveloped(args={"a": "1"}))
    assert order.args == {"a": "1"}
    assert order.correlation_id == "e-1"


def test_an_envelope_that_asks_for_something_else_is_refused() -> None:
    assert refusal(enveloped(action="stop_spider")) == "action is 'stop_spider'; it must be execute_spider"


def test_an_envelope_without_a_service_is_refused() -> None:
    text = json.dumps({"action": "execute_spider", "payload": {}, "timestamp": "2026-06-01T12:00:00Z"}).encode()
    assert "service" in refusal(text)


@for_each(
    ("text", "says"),
    [
        (b"", "it is empty"),
        (b"  \n", "it is empty"),
        (b"not json", "the message is 'not json'; it must be a JSON object with task_id, project and spider"),
        (b"\0\xff", "the message is '\\x00\ufffd'; it must be a JSON object"),
        (b"\xff\xfe", "it must be a JSON object"),
        (b"[1, 2]", "it must be a JSON object"),
        (b'"text"', "it must be a JSON object"),
        (b"{" * 100_000, "it must be a JSON object"),
        (b"[" * 100_000, "it must be a JSON object"),
        (b"x" * 10_000_000, "the size of the message is 10000000; it must be at most 1000000 bytes"),
        (b'{"task_id": "a", "task_id": "b"}', "the key 'task_id' is twice in one object"),
        (b"{}", "task_id: missing; it must be a text of 1 to 200 characters"),
        (body(task_id=""), "task_id is ''; it must be a text"),
        (body(task_id="x" * 201), "it must be a text of 1 to 200 characters"),
        (body(task_id=7), "task_id is 7; it must be a text"),  # type: ignore[arg-type]
        (body(task_id="a\0b"), "none of them invisible"),
        (body(project=None), "project is None; it must be a text"),
        (body(project="../etc"), "project is '../etc'; it must be letters, digits"),
        (body(spider=["prices"]), "spider is ['prices']; it must be a text"),
        (body(settings=[1]), "settings is [1]; it must be an object"),
        (body(args="a=b"), "args is 'a=b'; it must be an object"),
        (body(args={"a": "{{secret:KEY}}"}), "args: only a task may name a secret"),
        (body(priority=1.5), "priority is 1.5; it must be a whole number from 0 to 1000"),
        (body(_version=1.5), "_version is 1.5; it must be a text"),
        (body(version=["1"]), "version is ['1']; it must be a text"),
        (body(_version=-1), "_version is -1; it must be a text"),
        (body(_version="1", version="2"), "version: '1' and '2' are asked for; it must be one"),
        (body(priority="high"), "priority is 'high'; it must be a whole number"),
        (body(priority=True), "priority is True; it must be a whole number"),
        (body(status="done"), "status is 'done'; it must be pending, or left out"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_wrong_is_said_in_one_sentence(text: bytes, says: str) -> None:
    assert says in refusal(text)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_what_is_nested_deeply_is_refused_before_anybody_reads_it() -> None:
    assert submission_of(body(args={"a": nested(62)})).args
    too_deep = "it may be nested 64 deep at most"
    assert too_deep in refusal(body(args={"a": nested(63)}))
    assert too_deep in refusal(enveloped(args={"a": nested(62)}))
    for depth in (500, 900, 950, 970, 980, 990, 995, 1000, 1010):
        text = b"[" * depth + b"]" * depth
        assert "it" in refusal(b'{"task_id": "a", "project": "p", "spider": "s", "priority": %b}' % text)
        assert "it must be a JSON object" in refusal(text)


def test_the_largest_message_is_understood() -> None:
    padding = "x" * (LARGEST_BODY - len(body(args={"a": ""})))
    assert submission_of(body(args={"a": padding})).args["a"] == padding


def understood(text: bytes) -> Submission | None:
    """None where it is refused; anything else that is raised fails the test."""
    with suppress(Invalid):
        return submission_of(text)
    return None


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_an_order_or_refused(text: bytes) -> None:
    assert understood(text) is None


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("settings", "args", "priority", "status", "spider"), JSON)))
def test_any_values_are_an_order_or_refused(fields: dict[str, Any]) -> None:
    order = understood(body(**fields))
    assert order is None or run_of(order).spec.spec["args"] == {**order.args, "_job": "t-1"}


@pytest.mark.parametrize(
    ("field", "value"), [("reply_to", "r" * 251), ("reply_to", "é" * 126), ("correlation_id", "a\nb")]
)
def test_a_sender_that_could_not_be_told_is_refused(field: str, value: str) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(Invalid, match=field):
        check_reply_address(message(**fields))


def test_a_correlation_id_that_a_run_cannot_have_stays_with_the_reply() -> None:
    assert run_of(submission_of(body()), correlation_id="x" * 65).correlation_id == ""
    assert run_of(submission_of(body()), correlation_id="x" * 64).correlation_id == "x" * 64


def test_the_messages_of_the_how_to_are_understood() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "intake.md").read_text()
    plain, wrapped, reply = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert submission_of(plain.encode()).args == {"country": "de"}
    assert submission_of(wrapped.encode()).correlation_id == "checkout-88"
    assert Envelope.decode(reply.encode()).action == REPLY_ACTION
