"""The shape of the source: where SQL may be, and which names say nothing."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.cases import for_each

SOURCE = Path(__file__).parent.parent / "src" / "weft"
FILES = sorted(SOURCE.rglob("*.py"))
EMPTY_NAMES = {"utils", "helpers", "common", "base", "core", "misc", "manager", "handler", "service"}


def name_of(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def test_only_stores_the_database_and_events_speak_sql() -> None:
    others = [file for file in FILES if not may_speak_sql(file.relative_to(SOURCE))]
    wrong = [name_of(file) for file in others if "sqlalchemy" in packages_imported_by(file)]
    assert not wrong, f"these import sqlalchemy; move that to a store: {wrong}"


def test_a_file_is_named_by_its_subject() -> None:
    empty = [name_of(file) for file in FILES if EMPTY_NAMES & set(file.relative_to(SOURCE).with_suffix("").parts)]
    assert not empty, f"these names say nothing: {empty}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import sqlalchemy", True),
        ("from sqlalchemy.sql import text", True),
        ("def f():\n    from sqlalchemy import text", True),
        ("from weft.db import schema", False),
    ],
)
def test_an_import_of_sqlalchemy_is_seen_wherever_it_stands(tmp_path: Path, source: str, found: bool) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    assert ("sqlalchemy" in packages_imported_by(file)) is found


@for_each(
    ("name", "allowed"),
    [
        ("db/sqlite.py", True),
        ("events.py", True),
        ("runs/store.py", True),
        ("runs/lease_store.py", True),
        ("runs/runs.py", False),
        ("cli/events.py", False),
    ],
)
def test_sql_belongs_to_stores_the_database_and_events(name: str, allowed: bool) -> None:
    assert may_speak_sql(Path(name)) is allowed


def may_speak_sql(file: Path) -> bool:
    is_store = file.stem == "store" or file.stem.endswith("_store")
    return file.parts[0] in ("db", "events.py") or is_store


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def packages_imported_by(file: Path) -> set[str]:
    return {name.partition(".")[0] for name in modules_imported_by(file)}


def modules_imported_by(file: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
