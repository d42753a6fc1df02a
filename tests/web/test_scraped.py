"""Scraped values as pages show them."""

from __future__ import annotations

from typing import Any

from tests.cases import for_each
from weft.operations.items import ItemFieldDocument
from weft.web.scraped_values import LONG, ExpandBudget, columns_of, differences, pretty, value_cell


@for_each(
    ("value", "kind"),
    [("a", "text"), ("", "empty"), (1, "number"), (True, "word"), (None, "word"), ([], "nested"), ({"a": 1}, "nested")],
)
def test_a_value_is_shown_as_what_it_is(value: object, kind: str) -> None:
    assert value_cell(value, ExpandBudget()).kind == kind


@for_each(
    ("value", "is_link"),
    [
        ("https://shop.example/a?b=c#d", True),
        ("HTTP://shop.example", True),
        ("javascript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("//shop.example", False),
        ("https://shop.example\n", False),
        (" https://shop.example", False),
        ("https://", False),
        (["https://shop.example"], False),
    ],
)
def test_only_addresses_of_the_web_are_links(value: object, is_link: bool) -> None:
    assert bool(value_cell(value, ExpandBudget()).address) == is_link


def test_long_values_fold_as_long_as_there_is_room() -> None:
    room = ExpandBudget(LONG + 50)
    first, second = value_cell("a" * 5_000, room), value_cell("b" * 5_000, room)
    assert (len(first.whole), first.is_cut) == (LONG, True)
    assert (second.whole, second.is_cut, len(second.text)) == ("", True, 101)


def test_columns_are_those_that_most_items_have() -> None:
    rest: dict[str, Any] = {"filled": 1, "fill_rate": 0.99999, "types": {"string": 1}}
    fields = [ItemFieldDocument(name=f"f{n}", present=10 - n, **rest) for n in range(10)]
    assert [each.name for each in columns_of(fields, ())] == ["f0", "f1", "f2", "f3", "f4", "f5"]
    assert [each.percent for each in columns_of(fields, ("f9", "new"))] == ["99.9", ""]


def test_what_differs_is_told_field_by_field() -> None:
    same = "x" * 500
    old = {"gone": 1, "same": 2, "price": 1, "true": 1, "text": same + "a" + same}
    new = {"same": 2, "price": 2, "true": True, "text": same + "b" + same, "new": None}
    found = {each.field: each for each in differences(old, new, ExpandBudget())}
    assert {name: each.kind for name, each in found.items()} == {
        "price": "changed",
        "true": "changed",
        "text": "changed",
        "new": "added",
        "gone": "removed",
    }
    assert found["text"].before.text.startswith("…" + "x" * 40 + "a")
    assert found["text"].after.text.startswith("…" + "x" * 40 + "b")


def test_json_shows_signs_that_would_turn_the_rest_of_a_line() -> None:
    assert pretty({"file": "\u202egnp.exe\u2069"}, 100)[0] == '{\n  "file": "\\u202egnp.exe\\u2069"\n}'


def test_json_of_what_is_deep_and_wide_stays_small() -> None:
    wide: Any = [1] * 40_000
    for _ in range(190):
        wide = [wide]
    text, is_cut = pretty({"a": wide}, 1_000)
    assert (len(text), is_cut) == (1_000, True)
