"""Many rows at once, in the way that each database does best. One function for each thing that differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from operator import itemgetter
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    BindParameter,
    Column,
    Float,
    Insert,
    Integer,
    Select,
    String,
    Table,
    Text,
    TextClause,
    Update,
    bindparam,
    cast,
    column,
    func,
    insert,
    select,
    text,
    true,
    update,
)
from sqlalchemy import Sequence as IdSequence
from sqlalchemy import table as plain_table
from sqlalchemy.sql import visitors

from weft.db import schema
from weft.db.database import Transaction
from weft.db.prepared import Ready

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
        _texts[key] = _compiled_json(tx.connection.dialect, table, names, match, extra, stays)
    return _tell(tx, _texts[key], rows)


def _tell(tx: Transaction, sql: str, rows: Sequence[Mapping[str, Any]]) -> int:
    told = msgspec.json.encode(rows)
    if len(told) > LONGEST and len(rows) > 1:
        half = len(rows) // 2
        return _tell(tx, sql, rows[:half]) + _tell(tx, sql, rows[half:])
    return tx.connection.exec_driver_sql(sql, (told.decode(),)).rowcount


def _compiled_json(
    dialect: Any, table: Table, names: Sequence[str], match: Sequence[str], extra: Any, stays: str
) -> str:
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
        tx.connection.exec_driver_sql(sql, list(map(_values(order), rows)))


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
        names = [name for name in rows[0] if name != "id"]
        return sum(
            _update_alike(tx, table, dict(zip(names, same, strict=True)), ids, match, extra)
            for same, ids in alike.items()
        )
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
    return tx.connection.exec_driver_sql(sql, list(map(_values(order), rows))).rowcount


def _alike(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[int]]:
    """The ids of rows that are the same in everything else, by what that is."""
    of_row = _values(tuple([name for name in rows[0] if name != "id"]))
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        found.setdefault(of_row(row), []).append(row["id"])
    return found


@cache
def _values(names: tuple[str, ...]) -> Callable[[Row], tuple[Any, ...]]:
    """What makes a tuple of these columns of a row."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: tuple([row[name] for name in names])


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
        values = list(map(_values(order), rows))
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


MOST_TOGETHER = 50
"""How many questions MariaDB gets in one statement."""

Values = Mapping[str, int]
Found = list[Any]


class Each:
    """A question that is asked for many rows at once; they are its parameters, whole numbers, of these names.

    PostgreSQL takes them as one JSON text; SQLite, which is in this process, is asked again and again; MariaDB is asked
    many things in one statement, because each goes over the network.
    """

    def __init__(self, question: Select[Any], *names: str) -> None:
        self._plain = Ready(question)
        self._beside = Ready(_beside(question, names))

    def rows(self, tx: Transaction, given: Sequence[Values]) -> Found:
        """What is found for each of ``given``, in their order."""
        if not given:
            return []
        dialect = tx.connection.dialect.name
        if dialect == "postgresql":
            return self._beside.rows(tx, {"given": msgspec.json.encode(given).decode()})
        return self._plain.each(tx, given) if dialect == "sqlite" else self._together(tx, given)

    def _together(self, tx: Transaction, given: Sequence[Values]) -> Found:
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
