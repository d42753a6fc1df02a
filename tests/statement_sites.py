"""The lines of weft that execute SQL: as the source has them, and as a frame that runs shows them.

A line is named by its file from the root of the repository and its number: ``src/weft/runs/store.py:40``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "weft"
DATABASE_CODE = "src/weft/db/"
ENGINES = tuple(f"{DATABASE_CODE}{name}.py" for name in ("sqlite", "server", "migrate", "dialect_options"))
"""What these execute, they do on their own account: to begin and end transactions, and to make and check tables."""
OF_TRANSACTION = {"execute", "rows", "value"}
OF_STATEMENT = {"rows", "run", "among", "each"}
"""Methods of ``Ready`` and ``Each``, which take the transaction first."""


def call_site(frame: FrameType | None) -> tuple[str, int] | None:
    """The innermost line of weft outside its database code, or inside of it where that executes it by itself."""
    within = None
    while frame is not None:
        path = source_path(frame.f_code.co_filename)
        if path and not path.startswith(DATABASE_CODE):
            return path, frame.f_lineno
        if path and within is None:
            within = path, frame.f_lineno
        if path in ENGINES:
            return within
        frame = frame.f_back
    return within


@cache
def source_path(file: str) -> str:
    """The path of a file of weft's from the root of the repository; nothing for any other file."""
    path = Path(file)
    return str(path.relative_to(ROOT)) if path.is_relative_to(SOURCE) else ""


@cache
def written_sites() -> frozenset[str]:
    """Every line outside the database code that plainly executes a statement."""
    files = (file for file in SOURCE.rglob("*.py") if not source_path(str(file)).startswith(DATABASE_CODE))
    return frozenset(
        f"{source_path(str(file))}:{line}" for file in files for line in lines_with_statements(file.read_text())
    )


def lines_with_statements(source: str) -> Iterator[int]:
    if "tx" not in source:
        return
    tree = ast.parse(source)
    modules: set[str] = set()
    helpers: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {each.asname or each.name for each in node.names}
            (helpers if (node.module or "").startswith("weft.db.") else modules).update(names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _executes(node, modules, helpers):
            yield node.lineno


def _executes(call: ast.Call, modules: set[str], helpers: set[str]) -> bool:
    takes_transaction = bool(call.args) and _is_transaction(call.args[0])
    if isinstance(call.func, ast.Name):
        return takes_transaction and call.func.id in helpers
    if not isinstance(call.func, ast.Attribute):
        return False
    if _is_transaction(call.func.value):
        return call.func.attr in OF_TRANSACTION
    owner = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    return takes_transaction and call.func.attr in OF_STATEMENT and (owner not in modules or owner.isupper())


def _is_transaction(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "tx"


def function_at(site: str) -> str:
    """The function that a line is in, with its class; nothing for a line outside of functions."""
    path, _, line = site.rpartition(":")
    for first, last, name in _functions(path):
        if first <= int(line) <= last:
            return name
    return ""


@cache
def _functions(path: str) -> list[tuple[int, int, str]]:
    """The lines of each function, innermost first."""
    found: list[tuple[int, int, str]] = []

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            name = f"{prefix}{child.name}" if named else prefix  # type: ignore[attr-defined]
            look(child, f"{name}." if named else prefix)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((child.lineno, child.end_lineno or child.lineno, name))

    look(ast.parse((ROOT / path).read_text()), "")
    return found
