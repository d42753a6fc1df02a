"""Notes which line of weft executes SQL on which kind of database, and on request what SQL that is, for each test."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from tests.statement_sites import DATABASE_CODE, call_site
from weft.db.database import Transaction
from weft.db.prepared import Ready

KINDS = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mariadb", "mariadb": "mariadb"}
"""A database as the tests name it, by SQLAlchemy's name for its dialect."""

RANDOM = ("tests/api/test_schemathesis.py",)
"""What these execute differs from run to run, as with tests by hypothesis, so it proves nothing."""

_PARAMETER = re.compile(r"%\(\w+\)s|%s|__\[POSTCOMPILE_\w+\]")
_NUMBERED = re.compile(r"\b(sa_savepoint|weft|seq_1_to)_(?:[0-9a-f]{32}|\d+)\b")
"""Names that differ with each transaction, test database or number of ids."""
_LIST = re.compile(r"(\?(?:::[\w ]+(?:\[\])?)?)(?:, \1)+")
_GROUP = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_REPEATED = re.compile(rf"({_GROUP})(?:(?:,| UNION ALL| OR) \1)+")


def normalised(sql: str) -> str:
    """The same text however many values, rows or questions a statement was given."""
    text = _PARAMETER.sub("?", " ".join(sql.split()))
    text = _LIST.sub(r"\1", _NUMBERED.sub(r"\1", text))
    return _REPEATED.sub(r"\1", text)


def runs_on_any_database(item: pytest.Item) -> bool:
    """Whether this is one of the variants of a test that names no database itself."""
    if "database_kind" not in getattr(getattr(item, "callspec", None), "params", ()):
        return False
    marks = item.iter_markers("parametrize")
    return not any("database_kind" in (mark.args[0] if mark.args else mark.kwargs["argnames"]) for mark in marks)


class Recorder:
    """What each test executes. Database threads are not the test's own, so a statement counts for the test that runs.

    ``sites`` has, for each kind of database, the lines that executed a statement, each with a test that could do so on
    any database, where there is one.
    ``evidence`` has, for each test, its seconds and its lines and statements on each kind of database.
    """

    def __init__(self, *, texts: bool) -> None:
        self.sites: dict[str, dict[str, str]] = {kind: {} for kind in KINDS.values()}
        self.evidence: dict[str, dict[str, Any]] = {}
        self._texts = texts
        self._is_random = False
        self._test = ""
        self._executed: dict[str, set[str]] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._normalised: dict[str, str] = {}

    def listen(self) -> None:
        """Hear of all statements of SQLAlchemy's, and of those that are handed to a driver's own cursor."""
        event.listen(Engine, "before_cursor_execute", self.before_cursor_execute)
        bound = Ready.bound

        def recorded(ready: Ready, tx: Transaction, values: Any) -> tuple[str, Any]:
            self.note(tx.connection.dialect.name, ready.text(tx)[0])
            return bound(ready, tx, values)

        Ready.bound = recorded  # type: ignore[method-assign,assignment]

    def before_cursor_execute(self, connection: Connection, _cursor: Any, sql: str, *_: Any) -> None:
        self.note(connection.dialect.name, sql)

    def note(self, dialect: str, sql: str) -> None:
        site = call_site(sys._getframe(2))
        if site is None or self._is_random:
            return
        if site not in self._names:
            self._names[site] = f"{site[0]}:{site[1]}"
        kind, name = KINDS[dialect], self._names[site]
        if not self.sites[kind].get(name):
            self.sites[kind][name] = self._test
        if self._texts:
            executed = self._executed.setdefault(kind, set())
            executed.add(name)
            if name.startswith(DATABASE_CODE):  # perhaps a statement of the test's own
                return
            if sql not in self._normalised:
                self._normalised[sql] = normalised(sql)
            executed.add(self._normalised[sql])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._is_random = item.nodeid.startswith(RANDOM) or item.get_closest_marker("hypothesis") is not None
        self._test = item.nodeid if runs_on_any_database(item) else ""
        self._executed = {}
        begun = time.monotonic()
        try:
            return (yield)
        finally:
            if self._executed:
                executed = {kind: sorted(found) for kind, found in list(self._executed.items())}
                self.evidence[item.nodeid] = {"seconds": round(time.monotonic() - begun, 3), "executed": executed}
