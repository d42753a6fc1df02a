"""Many rows at once, in the way that each database does best. One function for each thing that differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, Column, Select, Table, Update, and_, bindparam, func, insert, select, text, update
from sqlalchemy import Sequence as IdSequence
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from weft.db import schema
from weft.db.database import Transaction

Row = Mapping[str, Any]


def reserve_ids(tx: Transaction, sequence: IdSequence, count: int) -> Sequence[int]:
    """Take the next ``count`` ids, ascending, so that rows can be composed before they are written.

    Sequences of PostgreSQL and MariaDB do not make transactions wait for each other; SQLite has one writer anyway.
    """
    if count == 0:
        return []
    dialect = tx.connection.dialect.name
    if dialect == "postgresql":
        numbers = select(func.nextval(sequence.name)).select_from(func.generate_series(1, count).alias("each"))
        return sorted(row[0] for row in tx.rows(numbers))
    if dialect in ("mysql", "mariadb"):
        return sorted(row[0] for row in tx.rows(text(f"SELECT NEXTVAL({sequence.name}) FROM seq_1_to_{int(count)}")))  # noqa: S608 - names of our own
    taken = (
        update(schema.sequences)
        .where(schema.sequences.c.name == sequence.name)
        .values(last=schema.sequences.c.last + count)
        .returning(schema.sequences.c.last)
    )
    last = tx.value(taken)
    if last is None:
        tx.execute(insert(schema.sequences).values(name=sequence.name, last=count))
        last = count
    return range(last - count + 1, last + 1)


def insert_many(tx: Transaction, table: Table, rows: Sequence[Row]) -> None:
    """Insert ``rows``, which all have the same columns.

    PostgreSQL takes one array a column; SQLite and PyMySQL are quickest with a plain list of rows.
    """
    if not rows:
        return
    if tx.connection.dialect.name == "postgresql" and len(rows) > 1:
        names = list(rows[0])
        columns = [table.c[name] for name in names]
        source = select(*_arrays(columns).c)
        tx.execute(insert(table).from_select(names, source), _by_column(rows, names))
        return
    if len(rows) == 1:
        tx.execute(insert(table), rows[0])
        return
    sql, order = _insert_sql(tx, table, tuple(rows[0]))
    tx.connection.exec_driver_sql(sql, [tuple([row[name] for name in order]) for row in rows])


def update_many(tx: Transaction, table: Table, rows: Sequence[Row], *, match: Sequence[str], extra: Any = None) -> int:
    """Set the other columns of each row where the ``match`` columns are equal; return how many rows changed.

    ``extra`` is one more condition that all rows must meet; it has no parameters of its own.
    """
    if not rows:
        return 0
    names = list(rows[0])
    changed = [name for name in names if name not in match]
    if tx.connection.dialect.name == "postgresql" and len(rows) > 1:
        source = _arrays([table.c[name] for name in names])
        condition = and_(*(table.c[name] == source.c[name] for name in match), *([] if extra is None else [extra]))
        statement = update(table).where(condition).values({name: source.c[name] for name in changed})
        return tx.execute(statement, _by_column(rows, names)).rowcount
    if len(rows) == 1:
        statement = _update(table, changed, match, extra)
        values = {f"m_{name}" if name in match else f"v_{name}": rows[0][name] for name in names}
        return tx.execute(statement, values).rowcount
    sql, order = _update_sql(tx, table, tuple(changed), tuple(match), extra)
    return tx.connection.exec_driver_sql(sql, [tuple([row[name] for name in order]) for row in rows]).rowcount


def insert_missing(tx: Transaction, table: Table, row: Row) -> None:
    """Insert ``row`` unless one with its key exists; a concurrent insert of the same key is waited for."""
    dialect = tx.connection.dialect.name
    if dialect == "postgresql":
        tx.execute(postgres_insert(table).values(row).on_conflict_do_nothing())
    elif dialect == "sqlite":
        tx.execute(sqlite_insert(table).values(row).on_conflict_do_nothing())
    else:
        tx.execute(mysql_insert(table).values(row).prefix_with("IGNORE"))


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


def _update_sql(tx: Transaction, table: Table, changed: tuple[str, ...], match: tuple[str, ...], extra: Any) -> Sql:
    key = (tx.connection.dialect.name, table.name, changed, match, str(extra))
    if key not in _compiled:
        compiled: Any = _update(table, changed, match, extra).compile(dialect=_positional(tx.connection.dialect))
        _compiled[key] = (str(compiled), tuple(name[2:] for name in compiled.positiontup))
    return _compiled[key]


def _positional(dialect: Any) -> Any:
    """The same dialect with values in order; PyMySQL's own way is by name."""
    return dialect if dialect.positional else type(dialect)(paramstyle="format")


def _update(table: Table, changed: Sequence[str], match: Sequence[str], extra: Any) -> Update:
    condition = [table.c[name] == bindparam(f"m_{name}") for name in match]
    condition += [] if extra is None else [extra]
    return update(table).where(*condition).values({name: bindparam(f"v_{name}") for name in changed})


def _arrays(columns: Sequence[Column[Any]]) -> Any:
    parameters = (bindparam(f"a_{column.name}", type_=ARRAY(column.type)) for column in columns)
    return (
        func.unnest(*parameters).table_valued(*(Column(c.name, c.type) for c in columns), name="given").render_derived()
    )


def _by_column(rows: Iterable[Row], names: Sequence[str]) -> dict[str, list[Any]]:
    return {f"a_{name}": [row[name] for row in rows] for name in names}
