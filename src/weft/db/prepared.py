"""Statements that are made ready once and then cost little more than their driver does.

For the few that run for every page of a crawl. Whoever asks keeps a ``Ready``; its parameters are given by name, and
one that stands behind ``in_`` (``expanding=True``) takes a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Integer
from sqlalchemy.exc import DBAPIError

from weft.db.database import Transaction

LIST = re.compile(r"IN \(__\[POSTCOMPILE_(\w+)\]\)")

MOST_IN_LIST = 5_000

Text = tuple[str, tuple[str, ...], Mapping[str, Any]]
"""A statement as its driver takes it, the order of its values, and those that are always the same."""


class Ready:
    """A statement, compiled for each kind of database that it is told."""

    def __init__(self, statement: Any, *, looks_up: str = "") -> None:
        """``looks_up`` is the name of a list of which each value is looked up by itself, and found in an index.

        PostgreSQL may believe that it is quicker to read all of a crawl, as long as it has not analysed the table.
        """
        self._statement, self._looks_up = statement, looks_up
        self._texts: dict[str, Text] = {}

    def rows(self, tx: Transaction, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """What a question finds."""
        with _cursor(tx) as cursor:
            cursor.execute(*self.bound(tx, values))
            return list(cursor.fetchall())

    def among(self, tx: Transaction, name: str, many: Sequence[Any], **values: Any) -> list[tuple[Any, ...]]:
        """What a question finds among ``many``, however many that are; SQLite takes no more than 32,766 at a time."""
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(many), MOST_IN_LIST):
            found += self.rows(tx, {**values, name: list(many[start : start + MOST_IN_LIST])})
        return found

    def run(self, tx: Transaction, values: Mapping[str, Any]) -> int:
        """How many rows it has changed."""
        with _cursor(tx) as cursor:
            cursor.execute(*self.bound(tx, values))
            return int(cursor.rowcount)

    def each(self, tx: Transaction, given: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        """What a question finds for one after another."""
        found: list[tuple[Any, ...]] = []
        with _cursor(tx) as cursor:
            for values in given:
                cursor.execute(*self.bound(tx, values))
                found += cursor.fetchall()
        return found

    def bound(self, tx: Transaction, values: Mapping[str, Any]) -> tuple[str, Any]:
        """The statement with its values."""
        dialect = tx.connection.dialect.name
        sql, order, same = self.text(tx)
        if dialect == "postgresql":
            return sql, {**same, **values}
        mark = "?" if dialect == "sqlite" else "%s"
        bound: list[Any] = []
        for name in order:
            value = values[name] if name in values else same[name]
            if isinstance(value, list):
                sql = sql.replace(f"(__[POSTCOMPILE_{name}])", f"({', '.join([mark] * len(value))})")
                bound += value
            else:
                bound.append(value)
        return sql, tuple(bound)

    def text(self, tx: Transaction) -> Text:
        dialect: Any = tx.connection.dialect
        if dialect.name not in self._texts:
            self._texts[dialect.name] = self._compiled(dialect)
        return self._texts[dialect.name]

    def _compiled(self, dialect: Any) -> Text:
        if dialect.name == "postgresql":
            compiled: Any = self._statement.compile(dialect=dialect)
            if self._looks_up:
                return _each_of(compiled, self._looks_up), (), compiled.params
            return LIST.sub(lambda found: f"= ANY({_list(compiled, found[1])})", str(compiled)), (), compiled.params
        with_order = dialect if dialect.positional else type(dialect)(paramstyle="format")
        compiled = self._statement.compile(dialect=with_order)
        return str(compiled), tuple(compiled.positiontup), compiled.params


@contextmanager
def _cursor(tx: Transaction) -> Iterator[Any]:
    """A cursor of the driver's own, whose errors are as all others."""
    connection = tx.connection
    if not connection.in_transaction():  # a statement of SQLAlchemy's begins one by itself
        connection.begin()
    cursor: Any = connection.connection.cursor()
    try:
        yield cursor
    except connection.dialect.loaded_dbapi.Error as problem:
        is_lost = connection.dialect.is_disconnect(problem, connection.connection.dbapi_connection, cursor)
        if is_lost:
            connection.invalidate(problem)
        kind, dialect = connection.dialect.loaded_dbapi.Error, connection.dialect
        raise DBAPIError.instance(
            None, None, problem, kind, connection_invalidated=is_lost, dialect=dialect
        ) from problem
    finally:
        cursor.close()


def _each_of(compiled: Any, name: str) -> str:
    """The same question for each value of the list, in its order."""
    one = str(compiled).replace(f"IN (__[POSTCOMPILE_{name}])", "= wanted.value")
    fenced = one if "FOR UPDATE" in one else f"{one} OFFSET 0"  # or it would become one join again
    wanted = f"unnest({_list(compiled, name)}) AS wanted(value)"
    return f"SELECT found.* FROM {wanted}, LATERAL ({fenced}) AS found"  # noqa: S608 - statements of our own


def _list(compiled: Any, name: str) -> str:
    """One parameter, so that the statement is the same however long the list is."""
    kind = "bigint" if isinstance(compiled.binds[name].type, Integer) else "text"
    return f"%({name})s::{kind}[]"
