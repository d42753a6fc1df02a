"""Items on their way into the spool: what JSON cannot say, what is too large, where a segment ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.starting import Zygote
from weft.agent.results import NotJSON, item_json
from weft.agent.run_folder import Spool


def test_what_is_not_json_is_refused_and_named_and_the_rest_is_kept(warm: Zygote) -> None:
    run = warm.run("odd")

    assert run.exit_code == 0
    assert run.stats["stats"]["weft/items_refused"] == 3
    assert run.end == {"reason": "finished", "outcome": "", "message": "3 of 6 items were refused: they are not JSON"}
    errors = [record["message"] for record in run.records if record["level"] == "ERROR"]
    assert errors == [
        "item 2 (dict) is refused: TypeError: Object of type object is not JSON serializable",
        "item 4 (dict) is refused: TypeError: Object of type bytes is not JSON serializable",
        "item 6 (int) is refused: TypeError: it is not an item: a spider may yield dicts and items",
    ]


def test_an_item_is_written_as_scrapys_own_exporter_would_and_always_as_json(warm: Zygote) -> None:
    numbers, product, text = warm.run("odd").items

    assert numbers == {"n": 1, "size": None, "cost": "1.50"}
    assert product == {"price": "12"}, "the serializer of a field is asked"
    assert text == {"n": "half a pair ?"}


def test_more_items_than_allowed_close_the_spider(warm: Zygote) -> None:
    run = warm.run("few", args={"count": "50"}, limits={"items": 2})

    assert run.end["outcome"] == "item_limit"
    assert run.end["message"] == "the spider yields more than the 2 items that are allowed"
    assert len(run.items) == 2


def test_an_item_that_is_too_large_closes_the_spider_and_is_named(warm: Zygote) -> None:
    run = warm.run("few", args={"colour": "x" * 1000}, limits={"item_bytes": 500})

    assert run.end["outcome"] == "item_limit"
    assert run.end["message"] == "item 1 has 1019 bytes; 500 are allowed"
    assert run.items == []


def test_a_disk_that_is_full_closes_the_spider_instead_of_losing_items(warm: Zygote) -> None:
    run = warm.run("few", args={"count": "50", "colour": "x" * 1000}, limits={"file_bytes": 20_000})

    assert run.end["outcome"] == "disk_limit"
    assert run.end["message"] == f"item {len(run.items) + 1} could not be written: File too large"


def test_a_segment_is_named_by_its_first_item_and_ends_at_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.agent.run_folder.SEGMENT_BYTES", 100)
    spool = Spool(tmp_path)
    for n in range(5):
        spool.add(json.dumps({"n": n, "text": "x" * 20}).encode())
    spool.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "000000000001.jl",
        "000000000003.jl",
        "000000000005.jl",
    ]
    lines = [json.loads(line) for line in (tmp_path / "000000000003.jl").read_bytes().splitlines()]
    assert [line["item"]["n"] for line in lines] == [2, 3]
    assert lines[0]["at"] <= lines[1]["at"]


def circular() -> dict[str, Any]:
    item: dict[str, Any] = {}
    item["itself"] = item
    return item


def deep() -> dict[str, Any]:
    item: dict[str, Any] = {}
    for _ in range(100_000):
        item = {"inner": item}
    return item


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (circular(), "ValueError: Circular reference detected"),
        (deep(), "RecursionError: maximum recursion depth exceeded"),
        ({("a", 1): 2}, "TypeError: keys must be str"),
        ({"inner": circular(), "size": float("inf")}, "ValueError: Circular reference detected"),
    ],
    ids=["circular", "deep", "key", "circular beside an infinity"],
)
def test_an_item_that_json_cannot_say_is_an_error_that_tells_why(item: dict[Any, Any], why: str) -> None:
    with pytest.raises(NotJSON, match=why):
        item_json(item)


def test_numbers_without_an_end_are_null_wherever_they_stand() -> None:
    assert item_json({"a": [1.5, float("inf")], "b": {"c": float("nan")}}) == b'{"a":[1.5,null],"b":{"c":null}}'
