"""The agent runs under the interpreter of a project, which may be older than weft's own."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft.agent
from tests.cases import for_each

OLDEST = (3, 9)
FILES = sorted(Path(weft.agent.__file__).parent.glob("*.py"))
BESIDE_SCRAPY = {"scrapy", "twisted", "itemadapter"}
"""Packages that are there wherever Scrapy is."""


def trees() -> Iterator[Any]:
    for file in FILES:
        yield pytest.param(ast.parse(file.read_text(), feature_version=OLDEST), id=file.name)


for_each_tree = for_each("tree", trees)


@for_each_tree
def test_a_file_of_the_agent_can_be_parsed_by_the_oldest_python(tree: ast.Module) -> None:
    unions = [
        node.lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("isinstance", "issubclass")
        for node in call.args[1:]
        if isinstance(node, ast.BinOp)
    ]
    assert not any(isinstance(node, ast.Match) for node in ast.walk(tree))
    assert not unions, f"a union of types is no object before Python 3.10: lines {unions}"


@for_each_tree
def test_annotations_of_the_agent_are_never_evaluated(tree: ast.Module) -> None:
    if not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body):
        return
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert any(alias.name == "annotations" for node in future for alias in node.names)


@for_each_tree
def test_the_agent_imports_only_what_comes_with_scrapy(tree: ast.Module) -> None:
    named = {
        *(alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names),
        *(node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level),
    }
    packages = {name.partition(".")[0] for name in named}
    assert packages <= BESIDE_SCRAPY | sys.stdlib_module_names
