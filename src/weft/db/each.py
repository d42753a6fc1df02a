"""One question for each of many rows, such as for the first of every queue, in the way that each database does best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import JSON, BigInteger, BindParameter, Column, Select, Text, bindparam, cast, func, select, true
from sqlalchemy.sql import visitors

from weft.db.database import Transaction

MOST_TOGETHER = 50
"""How many questions MariaDB gets in one statement."""

Row = Mapping[str, int]
Found = list[tuple[Any, ...]]

_prepared: dict[tuple[str, int], Any] = {}
"""By kind of database and question, which is therefore one object whenever it is asked."""


def for_each(tx: Transaction, question: Select[Any], given: Sequence[Row]) -> Found:
    """What ``question`` finds for each of ``given``, which are its parameters: whole numbers.

    PostgreSQL takes them as one JSON text; SQLite, which is in this process, is asked again and again; MariaDB is asked
    many things in one statement, because each goes over the network.
    """
    if not given:
        return []
    dialect = tx.connection.dialect.name
    prepared = _prepared.get((dialect, id(question)))
    if prepared is None:
        prepare = _beside if dialect == "postgresql" else _positional
        prepared = _prepared[dialect, id(question)] = prepare(tx, question, tuple(given[0]))
    ask = {"postgresql": _ask_beside, "sqlite": _ask_each}.get(dialect, _ask_together)
    return ask(tx, prepared, given)


def _ask_beside(tx: Transaction, query: Any, given: Sequence[Row]) -> Found:
    return list(map(tuple, tx.rows(query, {"given": msgspec.json.encode(given).decode()})))


def _ask_each(tx: Transaction, prepared: Any, given: Sequence[Row]) -> Found:
    sql, names, constants = prepared
    cursor, found = tx.connection.connection.cursor(), []
    for row in given:
        found += cursor.execute(sql, _values(names, constants, row)).fetchall()
    return found


def _ask_together(tx: Transaction, prepared: Any, given: Sequence[Row]) -> Found:
    sql, names, constants = prepared
    found: Found = []
    for start in range(0, len(given), MOST_TOGETHER):
        lot = given[start : start + MOST_TOGETHER]
        values = tuple(value for row in lot for value in _values(names, constants, row))
        found += map(tuple, tx.connection.exec_driver_sql(" UNION ALL ".join([f"({sql})"] * len(lot)), values))
    return found


def _values(names: Sequence[str], constants: Mapping[str, Any], row: Row) -> tuple[Any, ...]:
    return tuple([row[name] if name in row else constants[name] for name in names])


def _positional(tx: Transaction, question: Select[Any], names: tuple[str, ...]) -> Any:
    """The text of the question, the order of its parameters, and those that are always the same."""
    dialect: Any = tx.connection.dialect
    with_order = dialect if dialect.positional else type(dialect)(paramstyle="format")
    compiled: Any = question.compile(dialect=with_order)
    return str(compiled), tuple(compiled.positiontup), compiled.params


def _beside(tx: Transaction, question: Select[Any], names: tuple[str, ...]) -> Any:
    """The question beside a table of its parameters."""
    given = cast(bindparam("given", type_=Text()), JSON)
    typed = (Column(name, BigInteger()) for name in names)
    source = func.json_to_recordset(given).table_valued(*typed, name="given").render_derived(with_types=True)

    def taken_from_it(part: Any, **_: Any) -> Any:
        return source.c[part.key] if isinstance(part, BindParameter) and part.key in source.c else None

    replaced: Any = visitors.replacement_traverse(question, {}, taken_from_it)  # type: ignore[call-overload]
    asked = replaced.correlate(source).lateral("found")
    return select(*asked.c).select_from(source.join(asked, true()))
