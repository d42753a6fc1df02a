"""A line is an item that every database can keep, or it is refused."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from weft.items.collector import fingerprint, parse_lines

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(st.characters(), max_size=8), values, max_size=5))
def test_whatever_a_spider_writes_can_be_kept_and_read_again(item: dict[str, object]) -> None:
    (read,) = parse_lines(json.dumps({"at": 5, "item": item}).encode())
    assert read is not None
    at, text, digest, data = read
    assert at == 5
    assert "\0" not in text.encode("utf-8").decode()
    assert msgspec.json.decode(text) == data
    assert fingerprint(data) == digest


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    assert len(parse_lines(data)) <= data.count(b"\n") + 1


@for_each(
    "line",
    [b"nonsense", b"[]", b"null", b'{"at":1}', b'{"item":[]}', b'{"item":null}', b'{"item":{"a":1}', b" ", b'{"item":'],
)
def test_what_is_no_item_is_refused(line: bytes) -> None:
    assert parse_lines(line + b"\n") == [None]


def test_an_item_that_is_nested_too_deeply_is_refused() -> None:
    assert parse_lines(b'{"item":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001) == [None]


def test_a_number_of_more_than_64_bits_is_kept() -> None:
    (read,) = parse_lines(b'{"item":{"n":123456789012345678901234567890}}')
    assert read is not None
    assert read[3] == {"n": 123456789012345678901234567890}


@pytest.mark.parametrize("at", [b"-1", b'"soon"', b"1e300", b"99999999999999999999"])
def test_a_time_that_cannot_be_is_not_taken(at: bytes) -> None:
    (read,) = parse_lines(b'{"at":' + at + b',"item":{"n":1}}')
    assert read is not None
    assert (read[0], read[3]) == (0, {"n": 1})


def test_fields_stay_in_their_order() -> None:
    (read,) = parse_lines(b'{"item":{"z":1,"a":2}}')
    assert read is not None
    assert read[1] == '{"z":1,"a":2}'


@pytest.mark.parametrize("more", ["", "\\u0000"], ids=["plain", "with care"])
def test_an_item_is_no_deeper_than_everybody_can_read(more: str) -> None:
    def nested(levels: int) -> bytes:
        return b'{"item":{"t":"' + more.encode() + b'","a":' + b"[" * levels + b"]" * levels + b"}}"

    assert [parse_lines(nested(199))[0] is None, parse_lines(nested(200))[0] is None] == [False, True]
    assert parse_lines(nested(900)) == parse_lines(nested(100_000)) == [None]


def test_an_item_may_have_many_records_side_by_side() -> None:
    line = b'{"item":{"a":[' + b",".join([b"[{}]"] * 1000) + b"]}}"
    assert parse_lines(line)[0] is not None
