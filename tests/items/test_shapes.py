"""What items look like is told from the items, and checked with a schema of known keywords."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from weft.errors import Invalid
from weft.items.schemas import check_schema, field_statistics, inferred_schema, problem_of

PRICE = {"type": "object", "required": ["url"], "properties": {"price": {"type": ["number", "null"]}}}


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"url": "a", "price": 1}, None),
        ({"url": "a", "price": None}, None),
        ({"price": 1}, "item has no url"),
        ({"url": "a", "price": "1"}, "item.price is of type string; it must be number or null"),
        ({"url": "a", "price": True}, "item.price is of type boolean; it must be number or null"),
    ],
)
def test_the_first_problem_is_told_with_its_place(item: dict[str, Any], problem: str | None) -> None:
    assert problem_of(item, PRICE) == problem


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"items": {"type": "string"}}, ["a"], ["a", 1]),
        ({"enum": ["a", 1]}, 1, 2),
        ({"type": "integer"}, 2.0, 2.5),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": 1}, {"b": 1}),
        ({"type": "null"}, None, 0),
    ],
)
def test_each_keyword_is_checked(schema: dict[str, Any], good: object, bad: object) -> None:
    check_schema(schema)
    assert problem_of(good, schema) is None
    assert problem_of(bad, schema) is not None


@for_each(
    "schema",
    [
        [],
        {"pattern": "a"},
        {"type": "text"},
        {"required": "url"},
        {"properties": {"a": {"minimum": 1}}},
        {"items": 7},
        {"additionalProperties": {}},
        {"properties": []},
    ],
)
def test_a_schema_that_would_not_be_checked_is_refused(schema: object) -> None:
    with pytest.raises(Invalid, match="schema"):
        check_schema(schema)


def test_fill_rates_count_what_says_something() -> None:
    count, fields = field_statistics([{"a": 1, "b": ""}, {"a": None, "b": "x"}, {"b": []}])
    assert count == 3
    assert {name: (field["present"], field["filled"]) for name, field in fields.items()} == {"a": (2, 1), "b": (3, 1)}


simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.integers())


@given(st.lists(st.dictionaries(st.sampled_from("abc"), simple), max_size=8))
def test_all_items_meet_the_schema_that_is_inferred_from_them(items: list[dict[str, Any]]) -> None:
    schema = inferred_schema(*field_statistics(items))
    check_schema(schema)
    assert [problem_of(item, schema) for item in items] == [None] * len(items)
