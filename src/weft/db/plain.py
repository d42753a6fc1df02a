"""Statements that are made ready once and then cost little more than their driver does.

For the few that run for every page of a crawl. Whoever asks keeps a ``Ready``; its parameters are given by name, and
one that stands behind ``in_`` (``expanding=True``) takes a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Select

from weft.db.database import Transaction

LIST = re.compile(r"IN \(__\[POSTCOMPILE_(\w+)\]\)")

Text = tuple[str, tuple[str, ...], Mapping[str, Any]]
"""A statement as its driver takes it, the order of its values, and those that are always the same."""


class Ready:
    """A question, compiled for each kind of database that it is asked of."""

    def __init__(self, question: Select[Any]) -> None:
        self._question = question
        self._texts: dict[str, Text] = {}

    def rows(self, tx: Transaction, values: Mapping[str, Any]) -> Sequence[Any]:
        sql, bound = self.bound(tx, values)
        return tx.connection.exec_driver_sql(sql, bound).fetchall()

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
            compiled: Any = self._question.compile(dialect=dialect)
            return LIST.sub(lambda found: _any_of(compiled, found[1]), str(compiled)), (), compiled.params
        with_order = dialect if dialect.positional else type(dialect)(paramstyle="format")
        compiled = self._question.compile(dialect=with_order)
        return str(compiled), tuple(compiled.positiontup), compiled.params


def _any_of(compiled: Any, name: str) -> str:
    """One parameter that is a list, so that the statement is the same however long that is."""
    kind = "bigint" if isinstance(compiled.binds[name].type, BigInteger) else "text"
    return f"= ANY(%({name})s::{kind}[])"
