"""Each format, read back by a reader that is not weft's."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet
import pytest

from tests.cases import for_each
from tests.items.export.gathering import written
from weft.errors import Conflict, Invalid
from weft.items.exporters import ExportFormat, export

ROWS: list[dict[str, Any]] = [
    {"name": "tea, green", "price": 3, "tags": ["a", "b"], "stock": True},
    {"name": 'say "x"\r\ntwice', "price": 2.5, "stock": None, "maker": {"city": "Łódź 😀"}},
    {"maker": None, "price": -4},
]
COLUMNS = ["name", "price", "tags", "stock", "maker"]


def read_csv(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))


def read_parquet(data: bytes) -> Any:
    return pyarrow.parquet.ParquetFile(io.BytesIO(data))


def read_xml(data: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(data)  # noqa: S314 - what weft has just written


async def test_lines_of_json_are_the_rows() -> None:
    data = await written(ExportFormat.JSONL, ROWS)
    assert [json.loads(line) for line in data.decode().split("\n")[:-1]] == ROWS


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], []])
async def test_a_list_of_json_is_the_rows(rows: list[dict[str, Any]]) -> None:
    assert json.loads(await written(ExportFormat.JSON, rows)) == rows


async def test_chosen_fields_come_in_the_chosen_order() -> None:
    data = await written(ExportFormat.JSONL, ROWS, ("price", "name"))
    assert [list(json.loads(line)) for line in data.splitlines()] == [["price", "name"], ["price", "name"], ["price"]]
    assert read_csv(await written(ExportFormat.CSV, ROWS, ("price", "name")))[:2] == [
        ["price", "name"],
        ["3", "tea, green"],
    ]
    table = read_parquet(await written(ExportFormat.PARQUET, ROWS, ("price", "name"))).read()
    assert table.column_names == ["price", "name"]
    [first, *_] = read_xml(await written(ExportFormat.XML, ROWS, ("price", "name")))
    assert [each.tag for each in first] == ["price", "name"]


async def test_a_table_has_every_field_that_any_row_has() -> None:
    header, *lines = read_csv(await written(ExportFormat.CSV, ROWS))
    assert header == COLUMNS
    assert lines == [
        ["tea, green", "3", '["a","b"]', "true", ""],
        ['say "x"\r\ntwice', "2.5", "", "", '{"city":"Łódź 😀"}'],
        ["", "-4", "", "", ""],
    ]


@for_each("begin", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
async def test_no_text_is_a_formula(begin: str) -> None:
    evil = f"{begin}cmd|' /C calc'!A0"
    rows = [{evil: evil, "nested": [evil]}]
    header, line = read_csv(await written(ExportFormat.CSV, rows))
    assert header == [f"'{evil}", "nested"]
    assert line == [f"'{evil}", json.dumps([evil], ensure_ascii=False)]
    assert read_csv(await written(ExportFormat.CSV, rows, raw=True)) == [
        [evil, "nested"],
        [evil, json.dumps([evil], ensure_ascii=False)],
    ]


async def test_a_table_of_no_rows_is_empty_or_a_header() -> None:
    assert await written(ExportFormat.CSV, []) == b""
    assert read_csv(await written(ExportFormat.CSV, [], ("a", "b"))) == [["a", "b"]]


@pytest.mark.parametrize("format", [ExportFormat.CSV, ExportFormat.PARQUET])
async def test_a_table_of_any_number_of_columns_is_refused(format: ExportFormat) -> None:
    rows = [{f"field {number}": 1} for number in range(5_001)]
    with pytest.raises(Invalid, match="name those that you want"):
        await written(format, rows)
    assert await written(format, rows, ("field 7",))


async def test_a_column_that_appears_while_a_table_is_written_ends_it() -> None:
    passes = 0

    async def growing() -> Any:
        nonlocal passes
        passes += 1
        yield {"a": 1}
        if passes > 1:
            yield {"a": 1, "late": 2}

    for format in (ExportFormat.CSV, ExportFormat.PARQUET):
        passes = 0
        with pytest.raises(Conflict, match="'late' changed while"):
            [piece async for piece in export(format, growing)]


async def test_xml_says_what_the_rows_say() -> None:
    [tea, second, third] = read_xml(await written(ExportFormat.XML, ROWS))
    assert {each.tag: each.text for each in tea if len(each) == 0} == {
        "name": "tea, green",
        "price": "3",
        "stock": "true",
    }
    assert [each.text for each in tea.findall("tags/value")] == ["a", "b"]
    assert second.findtext("name") == 'say "x"\r\ntwice'
    assert second.findtext("maker/city") == "Łódź 😀"
    assert third.find("maker").get("nil") == "true"  # type: ignore[union-attr]


@for_each("name", ["1st", "with space", "", "a<b>", "xmlns", "a:b", "ключ", 'quo"te', "-", "\x00"])
async def test_any_name_becomes_a_valid_one_of_xml(name: str) -> None:
    [item] = read_xml(await written(ExportFormat.XML, [{name: "x"}]))
    [field] = item
    assert field.text == "x"
    assert field.get("name", field.tag) == name.replace("\x00", "")


async def test_characters_that_xml_cannot_have_are_dropped() -> None:
    [item] = read_xml(await written(ExportFormat.XML, [{"a": "x\x00\x08\x1b\ufffe]]>&<y"}]))
    assert item.findtext("a") == "x]]>&<y"


async def test_what_is_nested_deeply_is_json_within_xml() -> None:
    value: Any = "core"
    for _ in range(300):
        value = [value]
    root = read_xml(await written(ExportFormat.XML, [{"a": value}]))
    [text] = [each.text for each in root.iter() if each.text and each.text.strip()]
    assert "core" in text
    assert json.loads(text)[0]


async def test_parquet_has_types_where_they_hold_and_text_elsewhere() -> None:
    table = read_parquet(await written(ExportFormat.PARQUET, ROWS)).read()
    assert [str(kind) for kind in table.schema.types] == ["string", "double", "string", "bool", "string"]
    assert table.to_pylist() == [
        {"name": "tea, green", "price": 3.0, "tags": '["a","b"]', "stock": True, "maker": None},
        {"name": 'say "x"\r\ntwice', "price": 2.5, "tags": None, "stock": None, "maker": '{"city":"Łódź 😀"}'},
        {"name": None, "price": -4.0, "tags": None, "stock": None, "maker": None},
    ]


@for_each(
    ("values", "kind", "kept"),
    [
        ([1, 2**63 - 1], "int64", [1, 2**63 - 1]),
        ([1, 2**63], "string", ["1", "9223372036854775808"]),
        ([0.5, 2**60], "string", ["0.5", "1152921504606846976"]),
        ([1, "one"], "string", ["1", "one"]),
        ([True, 1], "string", ["true", "1"]),
        ([None, None], "string", [None, None]),
    ],
)
async def test_no_value_is_changed_by_the_type_of_its_column(values: list[Any], kind: str, kept: list[Any]) -> None:
    column = read_parquet(await written(ExportFormat.PARQUET, [{"a": each} for each in values])).read().column("a")
    assert (str(column.type), column.to_pylist()) == (kind, kept)


async def test_a_late_value_of_another_type_makes_the_whole_column_text() -> None:
    file = read_parquet(
        await written(ExportFormat.PARQUET, [{"n": number} for number in range(25_000)] + [{"n": "end"}])
    )
    assert file.num_row_groups == 3
    assert file.read().column("n").to_pylist() == [*map(str, range(25_000)), "end"]


async def test_parquet_of_no_rows_can_be_read() -> None:
    assert read_parquet(await written(ExportFormat.PARQUET, [])).metadata.num_rows == 0


def test_parquet_without_its_library_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from weft.items.exporters import ExportFormat, export\n"
        "export(ExportFormat.PARQUET, None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the parquet format needs an extra package: pip install 'weft[parquet]'" in done.stderr
