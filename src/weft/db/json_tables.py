"""Many changes for MariaDB as one JSON text: its driver would send one after another, and wait for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Float, Integer, String, Table, column, func, update
from sqlalchemy import table as plain_table

from weft.db.database import Transaction

FEW = 4
"""How many rows are told one by one."""

LONGEST = 4 << 20
"""Bytes of one text; the server takes no more than 16 MB with one statement, as it is set up by default."""

FITTING = (Integer, Float, String)
"""Types that are the same in JSON."""

_texts: dict[tuple[Any, ...], str] = {}


def fits(table: Table, row: Mapping[str, Any]) -> bool:
    return all(isinstance(table.c[name].type, FITTING) for name in row)


def update_from_text(
    tx: Transaction,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    match: tuple[str, ...],
    extra: Any,
    stays: str,
) -> int:
    """As ``bulk.update_many``."""
    names = tuple(rows[0])
    key = (table.name, names, match, id(extra), stays)
    if key not in _texts:
        _texts[key] = _compiled(tx.connection.dialect, table, names, match, extra, stays)
    return _tell(tx, _texts[key], rows)


def _tell(tx: Transaction, sql: str, rows: Sequence[Mapping[str, Any]]) -> int:
    told = msgspec.json.encode(rows)
    if len(told) > LONGEST and len(rows) > 1:
        half = len(rows) // 2
        return _tell(tx, sql, rows[:half]) + _tell(tx, sql, rows[half:])
    return tx.connection.exec_driver_sql(sql, (told.decode(),)).rowcount


def _compiled(dialect: Any, table: Table, names: Sequence[str], match: Sequence[str], extra: Any, stays: str) -> str:
    """An update of the rows that are found for each row of the text, in its order."""
    given = plain_table("given", *(column(name) for name in names))
    condition = [table.c[name] == given.c[name] for name in match] + ([] if extra is None else [extra])
    values = or_as_it_is(table, {name: given.c[name] for name in names if name not in match}, stays)
    compiled = str(update(table).where(*condition).values(values).compile(dialect=dialect))
    typed = ", ".join(f"`{name}` {table.c[name].type.compile(dialect=dialect)} PATH '$.{name}'" for name in names)
    beginning = f"UPDATE {table.name}, given SET"
    if not compiled.startswith(beginning):
        raise AssertionError(compiled)
    told = f"JSON_TABLE(%s, '$[*]' COLUMNS ({typed})) AS given"
    by_key = "FORCE INDEX (PRIMARY)"  # or all of a small table would be read, and locked
    return f"UPDATE {told} STRAIGHT_JOIN {table.name} {by_key} SET" + compiled.removeprefix(beginning)


def or_as_it_is(table: Table, values: Mapping[str, Any], stays: str) -> Mapping[str, Any]:
    """A column that ``stays`` is left alone where the value for it is None."""
    return {name: func.coalesce(value, table.c[name]) if name == stays else value for name, value in values.items()}
