"""Many rows at once, in the way that each database does best. One function for each thing that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    Insert,
    Integer,
    Select,
    Table,
    Text,
    Update,
    bindparam,
    cast,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy import Sequence as IdSequence

from weft.db import schema
from weft.db.database import Transaction
from weft.db.json_tables import FEW, fits, or_as_it_is, update_from_text
from weft.db.plain import Ready

Row = Mapping[str, Any]


def reserve_ids(tx: Transaction, sequence: IdSequence, count: int) -> Sequence[int]:
    """Take the next ``count`` ids, ascending, so that rows can be composed before they are written.

    Sequences of PostgreSQL and MariaDB do not make transactions wait for each other; SQLite has one writer anyway.
    """
    if count == 0:
        return []
    dialect = tx.connection.dialect.name
    if dialect == "postgresql":
        return sorted(row[0] for row in tx.rows(_next_values(sequence.name), {"count": count}))
    if dialect in ("mysql", "mariadb"):
        return sorted(row[0] for row in tx.rows(text(f"SELECT NEXTVAL({sequence.name}) FROM seq_1_to_{int(count)}")))  # noqa: S608 - names of our own
    last = tx.value(_next_last(), {"of": sequence.name, "count": count})
    if last is None:
        tx.execute(insert(schema.sequences).values(name=sequence.name, last=count))
        last = count
    return range(last - count + 1, last + 1)


@cache
def _next_values(name: str) -> Select[Any]:
    each = func.generate_series(1, bindparam("count", type_=Integer())).alias("each")
    return select(func.nextval(name)).select_from(each)


@cache
def _next_last() -> Any:
    table = schema.sequences
    taken = update(table).where(table.c.name == bindparam("of"))
    return taken.values(last=table.c.last + bindparam("count")).returning(table.c.last)


def insert_many(tx: Transaction, table: Table, rows: Sequence[Row]) -> None:
    """Insert ``rows``, which all have the same columns.

    PostgreSQL takes them as one JSON text, which costs a fraction of a parameter a value; the drivers of SQLite and
    MariaDB are quickest with a plain list of tuples.
    """
    if not rows:
        return
    names = tuple(rows[0])
    if len(rows) == 1:
        tx.execute(_insert(table), rows[0])
    elif tx.connection.dialect.name == "postgresql":
        _insert_from_json(table, names).run(tx, {"given": msgspec.json.encode(rows).decode()})
    else:
        sql, order = _insert_sql(tx, table, names)
        tx.connection.exec_driver_sql(sql, [tuple([row[name] for name in order]) for row in rows])


@cache
def _insert(table: Table) -> Insert:
    return insert(table)


def update_many(
    tx: Transaction, table: Table, rows: Sequence[Row], *, match: tuple[str, ...], extra: Any = None, stays: str = ""
) -> int:
    """Set the other columns of each row where the ``match`` columns are equal; return how many rows changed.

    ``extra`` is one more condition that all rows must meet; it has no parameters of its own. Rows that differ only in
    their id, as most do when a batch of runs ends well, are written by one statement. ``stays`` is a column that a row
    leaves as it is where it says None; then rows are not looked through for those that are alike.
    """
    if not rows:
        return 0
    alike = _alike(rows) if "id" in match and not stays else {}
    if alike and len(alike) * 4 <= len(rows):
        return sum(_update_alike(tx, table, dict(same), ids, match, extra) for same, ids in alike.items())
    changed = tuple(name for name in rows[0] if name not in match)
    if len(rows) == 1:
        values = {f"m_{name}" if name in match else f"v_{name}": value for name, value in rows[0].items()}
        return _update_cached(table, changed, match, extra, stays).run(tx, values)
    if tx.connection.dialect.name == "postgresql":
        statement = _update_from_json(table, changed, match, extra, stays)
        return statement.run(tx, {"given": msgspec.json.encode(rows).decode()})
    if tx.connection.dialect.name == "mariadb" and len(rows) >= FEW and fits(table, rows[0]):
        return update_from_text(tx, table, rows, match=match, extra=extra, stays=stays)
    sql, order = _update_sql(tx, table, changed, match, extra, stays)
    return tx.connection.exec_driver_sql(sql, [tuple([row[name] for name in order]) for row in rows]).rowcount


def _alike(rows: Sequence[Row]) -> dict[tuple[tuple[str, Any], ...], list[int]]:
    """The ids of rows that are the same in everything else."""
    found: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for row in rows:
        same = tuple([item for item in row.items() if item[0] != "id"])
        found.setdefault(same, []).append(row["id"])
    return found


def _update_alike(tx: Transaction, table: Table, same: Row, ids: list[int], match: tuple[str, ...], extra: Any) -> int:
    condition = [table.c.id.in_(ids), *(table.c[name] == same[name] for name in match if name != "id")]
    condition += [] if extra is None else [extra]
    values = {name: value for name, value in same.items() if name not in match}
    return tx.execute(update(table).where(*condition).values(values)).rowcount


def insert_missing(tx: Transaction, table: Table, row: Row) -> None:
    """Insert ``row`` unless one with its key exists; a concurrent insert of the same key is waited for."""
    dialect = tx.connection.dialect.name
    if dialect in ("mysql", "mariadb"):
        tx.execute(insert(table).values(row).prefix_with("IGNORE"))
    else:  # the dialect of the open connection is loaded; the others are left alone, because loading one takes time
        conflicts_ignored = import_module(f"sqlalchemy.dialects.{dialect}").insert(table).on_conflict_do_nothing()
        tx.execute(conflicts_ignored.values(row))


def insert_missing_many(tx: Transaction, table: Table, rows: Sequence[Row]) -> None:
    """Insert those of ``rows``, which all have the same columns, whose keys do not exist; in the order of the rows, so
    that two who insert the same ones in one order wait for each other and never both."""
    if len(rows) == 1:
        insert_missing(tx, table, rows[0])
    elif rows and tx.connection.dialect.name == "postgresql":
        _missing_from_json(table, tuple(rows[0])).run(tx, {"given": msgspec.json.encode(rows).decode()})
    elif rows:
        sql, order = _insert_sql(tx, table, tuple(rows[0]))
        ignoring = "INSERT OR IGNORE" if tx.connection.dialect.name == "sqlite" else "INSERT IGNORE"
        values = [tuple([row[name] for name in order]) for row in rows]
        tx.connection.exec_driver_sql(sql.replace("INSERT", ignoring, 1), values)


def in_this_order(query: Select[Any], first: Table) -> Select[Any]:
    """Read and lock the rows of ``first`` by their key, and only then those that are joined to them.

    MariaDB, which locks what it reads, would otherwise begin with the smaller table, or read all of one.
    """
    walked = query.with_hint(first, "FORCE INDEX (PRIMARY)", "mariadb")
    return walked.prefix_with("STRAIGHT_JOIN", dialect="mariadb")


def skip_locked(query: Select[Any]) -> Select[Any]:
    """Lock the rows and pass over those that others hold. SQLite, with its one writer, needs neither."""
    return query.with_for_update(skip_locked=True)


Sql = tuple[str, tuple[str, ...]]
"""A statement as the driver takes it, and the order of its values."""

_compiled: dict[tuple[Any, ...], Sql] = {}
"""Compiled once, so that a row costs no more than its tuple."""


def _insert_sql(tx: Transaction, table: Table, names: tuple[str, ...]) -> Sql:
    key = (tx.connection.dialect.name, table.name, names)
    if key not in _compiled:
        compiled: Any = insert(table).compile(dialect=_positional(tx.connection.dialect), column_keys=list(names))
        _compiled[key] = (str(compiled), tuple(compiled.positiontup))
    return _compiled[key]


def _update_sql(
    tx: Transaction, table: Table, changed: tuple[str, ...], match: tuple[str, ...], extra: Any, stays: str
) -> Sql:
    key = (tx.connection.dialect.name, table.name, changed, match, id(extra), stays)
    if key not in _compiled:
        compiled: Any = _update(table, changed, match, extra, stays).compile(dialect=_positional(tx.connection.dialect))
        _compiled[key] = (str(compiled), tuple(name[2:] for name in compiled.positiontup))
    return _compiled[key]


def _positional(dialect: Any) -> Any:
    """The same dialect with values in order; PyMySQL's own way is by name."""
    return dialect if dialect.positional else type(dialect)(paramstyle="format")


_updates: dict[tuple[Any, ...], Ready] = {}


def _update_cached(table: Table, changed: tuple[str, ...], match: tuple[str, ...], extra: Any, stays: str) -> Ready:
    key = (table.name, changed, match, id(extra), stays)
    if key not in _updates:
        _updates[key] = Ready(_update(table, changed, match, extra, stays))
    return _updates[key]


def _update(table: Table, changed: Sequence[str], match: Sequence[str], extra: Any, stays: str) -> Update:
    condition = [table.c[name] == bindparam(f"m_{name}") for name in match]
    condition += [] if extra is None else [extra]
    values = {name: bindparam(f"v_{name}", type_=table.c[name].type) for name in changed}
    return update(table).where(*condition).values(or_as_it_is(table, values, stays))


_from_json: dict[tuple[Any, ...], Ready] = {}
"""Statements whose making costs more than their running."""


def _insert_from_json(table: Table, names: tuple[str, ...]) -> Ready:
    key = (table.name, names)
    if key not in _from_json:
        source = _json_rows([table.c[name] for name in names])
        _from_json[key] = Ready(insert(table).from_select(list(names), select(*source.c)))
    return _from_json[key]


def _missing_from_json(table: Table, names: tuple[str, ...]) -> Ready:
    key = (table.name, names, "missing")
    if key not in _from_json:
        source = _json_rows([table.c[name] for name in names])
        made = import_module("sqlalchemy.dialects.postgresql").insert(table)
        _from_json[key] = Ready(made.from_select(list(names), select(*source.c)).on_conflict_do_nothing())
    return _from_json[key]


def _update_from_json(table: Table, changed: tuple[str, ...], match: tuple[str, ...], extra: Any, stays: str) -> Ready:
    key = (table.name, changed, match, id(extra), stays)
    if key not in _from_json:
        source = _json_rows([table.c[name] for name in (*match, *changed)])
        condition = [table.c[name] == source.c[name] for name in match] + ([] if extra is None else [extra])
        values = or_as_it_is(table, {name: source.c[name] for name in changed}, stays)
        _from_json[key] = Ready(update(table).where(*condition).values(values))
    return _from_json[key]


def _json_rows(columns: Sequence[Column[Any]]) -> Any:
    """The rows of the JSON text ``given`` as a table."""
    given = cast(bindparam("given", type_=Text()), JSON)
    typed = (Column(column.name, column.type) for column in columns)
    return func.json_to_recordset(given).table_valued(*typed, name="given").render_derived(with_types=True)
