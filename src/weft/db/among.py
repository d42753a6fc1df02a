"""Rows whose text is one of many, locked in the way that each database does best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, String, Table, TextClause, bindparam, func, select, text

from weft.db.database import Transaction

_queries: dict[tuple[str, ...], Any] = {}
"""Made once: that takes longer than to run one."""


def lock_among(
    tx: Transaction, table: Table, columns: tuple[str, ...], keys: Sequence[str], *, key: str, **within: int
) -> Sequence[Any]:
    """The ``columns`` of those rows whose ``key`` is in ``keys``, which are sorted; they are locked in that order.

    ``within`` names the other column of the unique index that has ``key`` in it, and its value.
    """
    if not keys:
        return []
    ((other, value),) = within.items()
    dialect = tx.connection.dialect.name
    kept = (dialect, table.name, other, key, *columns)
    if kept not in _queries:
        _queries[kept] = _locking(dialect, table, columns, key, other)
    given = msgspec.json.encode(keys).decode() if dialect == "sqlite" else list(keys)
    return tx.rows(_queries[kept], {"other": value, "given": given})


def _locking(dialect: str, table: Table, columns: tuple[str, ...], key: str, other: str) -> Select[Any] | TextClause:
    if dialect == "postgresql":
        return _each_by_itself(table, columns, key, other)
    query = select(*(table.c[name] for name in columns)).where(table.c[other] == bindparam("other"))
    if dialect == "sqlite":
        each = func.json_each(bindparam("given", type_=String())).table_valued("value")
        return query.where(table.c[key].in_(select(each.c.value)))
    return query.where(table.c[key].in_(bindparam("given", expanding=True))).order_by(table.c[key]).with_for_update()


def _each_by_itself(table: Table, columns: tuple[str, ...], key: str, other: str) -> TextClause:
    """PostgreSQL would rather look through the whole index than look up a thousand keys and sort what it finds."""
    return text(
        f"""SELECT found.* FROM unnest(CAST(:given AS varchar[])) AS given (key) CROSS JOIN LATERAL (
            SELECT {", ".join(columns)} FROM {table.name}
            WHERE {other} = :other AND {table.name}.{key} = given.key LIMIT 1 FOR UPDATE
        ) AS found"""  # noqa: S608 - names of our own
    )
