"""One question for each of many rows, such as for the first of every queue, in the way that each database does best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import JSON, BigInteger, BindParameter, Column, Select, Text, bindparam, cast, func, select, true
from sqlalchemy.sql import visitors

from weft.db.database import Transaction
from weft.db.plain import Ready

MOST_TOGETHER = 50
"""How many questions MariaDB gets in one statement."""

Row = Mapping[str, int]
Found = list[Any]


class Each:
    """A question that is asked for many rows at once; they are its parameters, whole numbers, of these names.

    PostgreSQL takes them as one JSON text; SQLite, which is in this process, is asked again and again; MariaDB is asked
    many things in one statement, because each goes over the network.
    """

    def __init__(self, question: Select[Any], *names: str) -> None:
        self._plain = Ready(question)
        self._beside = Ready(_beside(question, names))

    def rows(self, tx: Transaction, given: Sequence[Row]) -> Found:
        """What is found for each of ``given``, in their order."""
        if not given:
            return []
        dialect = tx.connection.dialect.name
        if dialect == "postgresql":
            return self._beside.rows(tx, {"given": msgspec.json.encode(given).decode()})
        return self._plain.each(tx, given) if dialect == "sqlite" else self._together(tx, given)

    def _together(self, tx: Transaction, given: Sequence[Row]) -> Found:
        found: Found = []
        for start in range(0, len(given), MOST_TOGETHER):
            asked = [self._plain.bound(tx, row) for row in given[start : start + MOST_TOGETHER]]
            sql = " UNION ALL ".join(f"({each})" for each, _ in asked)
            found += tx.connection.exec_driver_sql(sql, tuple(value for _, values in asked for value in values))
        return found


def _beside(question: Select[Any], names: Sequence[str]) -> Select[Any]:
    """The question beside a table of its parameters."""
    given = cast(bindparam("given", type_=Text()), JSON)
    typed = (Column(name, BigInteger()) for name in names)
    source = func.json_to_recordset(given).table_valued(*typed, name="given").render_derived(with_types=True)

    def taken_from_it(part: Any, **_: Any) -> Any:
        return source.c[part.key] if isinstance(part, BindParameter) and part.key in source.c else None

    replaced: Any = visitors.replacement_traverse(question, {}, taken_from_it)  # type: ignore[call-overload]
    asked = replaced.correlate(source).lateral("found")
    return select(*asked.c).select_from(source.join(asked, true()))
