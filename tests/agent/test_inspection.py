"""What the check of a deploy learns of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.spiders import write_project
from tests.agent.starting import inspect


@pytest.fixture(scope="module")
def spiders(code: Path) -> dict[str, dict[str, Any]]:
    status, answer = inspect(code)
    assert status == 0, answer
    return {spider["name"]: spider for spider in answer["spiders"]}


def test_a_spider_is_described_by_its_docstring(spiders: dict[str, dict[str, Any]]) -> None:
    assert spiders["few"]["doc"].startswith("Yields a few things.")
    assert spiders["long"]["doc"] == ""


def test_arguments_have_defaults_types_and_texts(spiders: dict[str, dict[str, Any]]) -> None:
    assert spiders["few"]["arguments"] == [
        {"name": "count", "default": "'3'", "annotation": "", "doc": "how many of them"},
        {"name": "colour", "default": "'red'", "annotation": "str", "doc": "of each thing"},
    ]


def test_an_argument_that_must_be_given_has_no_default(spiders: dict[str, dict[str, Any]]) -> None:
    assert spiders["strict"]["arguments"] == [
        {"name": "town", "default": None, "annotation": "", "doc": ""},
        {"name": "distance", "default": "5", "annotation": "int", "doc": ""},
    ]


def test_a_spider_takes_more_arguments_where_it_passes_them_on(spiders: dict[str, dict[str, Any]]) -> None:
    assert spiders["few"]["takes_more"]
    assert spiders["long"]["takes_more"]
    assert not spiders["strict"]["takes_more"]


def test_a_project_that_cannot_be_imported_is_answered_with_its_traceback(tmp_path: Path) -> None:
    code = write_project(tmp_path, spiders="1 / 0")
    status, answer = inspect(code)

    assert status == 1
    assert answer["error"].rstrip().endswith("ZeroDivisionError: division by zero")


def test_what_a_project_prints_while_it_is_imported_is_not_the_answer(tmp_path: Path) -> None:
    code = write_project(tmp_path, spiders="print('hello')")
    status, answer = inspect(code)

    assert (status, answer["spiders"]) == (0, [])
