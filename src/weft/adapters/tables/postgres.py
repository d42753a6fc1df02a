"""Items as rows of a table in a PostgreSQL of the user's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec
import psycopg
from psycopg import errors, sql

from weft.errors import DestinationDown, Invalid

SHAPE = "it must be postgresql://user:{{secret:NAME}}@host/database/table"
TYPES = {
    "weft_dataset": "text",
    "weft_key": "text",
    "weft_record": "bigint",
    "weft_revision": "integer",
    "weft_run": "bigint",
    "weft_attempt": "integer",
    "weft_seq": "bigint",
    "at": "timestamptz",
    "data": "jsonb",
}
KEYS = {"records": ("weft_dataset", "weft_key"), "items": ("weft_run", "weft_attempt", "weft_seq")}
"""What tells a row from all others, by what the table has rows of."""

AGE = ("weft_record", "weft_revision", "weft_run", "weft_attempt", "weft_seq")
"""Of two states of a record, the newer one is larger in these."""

CONNECT_SECONDS, ANSWER_SECONDS = 10, 60


class PostgresTable:
    """Opened with ``postgresql://…/database/table`` or ``…/database/schema.table``."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
        self._key = KEYS[dict(query).get("rows", "records")]
        parts = parts._replace(query=urlencode([each for each in query if each[0] != "rows"]))
        database, slash, name = parts.path.removeprefix("/").partition("/")
        if not database or not slash or not name or "/" in name:
            raise Invalid("the table URL", f"postgresql://…{parts.path}", SHAPE)
        self._conninfo = urlunsplit(parts._replace(path=f"/{database}"))
        self._table = sql.Identifier(*unquote(name).split(".", 1))
        self._name = f"postgresql://{parts.hostname or ''}{parts.path}"

    async def upsert(self, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, bool]) -> None:
        try:
            async with self._connected() as line:
                try:
                    await self._write(line, rows, columns)
                except (errors.UndefinedTable, errors.UndefinedColumn):
                    await line.rollback()
                    await self._make(line, columns)
                    await self._write(line, rows, columns)
        except errors.InvalidColumnReference as problem:
            key = ", ".join(self._key)
            raise DestinationDown(
                self._name, f"it has no primary key ({key}); name a table that is not there yet"
            ) from problem
        except (psycopg.Error, OSError, UnicodeError) as problem:
            raise DestinationDown(self._name, problem) from problem

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A transaction on a connection of its own, closed in any case: the driver's own block leaves one open whose
        commit fails or is cancelled."""
        line = await psycopg.AsyncConnection.connect(
            self._conninfo,
            connect_timeout=CONNECT_SECONDS,
            application_name="weft destination",
            options=f"-c statement_timeout={ANSWER_SECONDS}s",
            prepare_threshold=None,
        )
        try:
            yield line
            await line.commit()
        finally:
            await line.close()

    async def _make(self, line: psycopg.AsyncConnection[Any], columns: Mapping[str, bool]) -> None:
        typed = TYPES | {name: "numeric" if number else "text" for name, number in columns.items()}
        declared = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in typed.items()]
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))")
        await line.execute(create.format(self._table, sql.SQL(", ").join(declared), _listed(self._key)))
        for column in declared:
            await line.execute(sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}").format(self._table, column))

    async def _write(
        self, line: psycopg.AsyncConnection[Any], rows: Sequence[Mapping[str, Any]], columns: Mapping[str, bool]
    ) -> None:
        names = [*TYPES, *columns]
        replaced = [
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names if name not in self._key
        ]
        insert = sql.SQL("INSERT INTO {} AS known ({}) VALUES ({})").format(
            self._table, _listed(names), sql.SQL(", ").join(sql.Placeholder() for _ in names)
        )
        replace = sql.SQL("ON CONFLICT ({}) DO UPDATE SET {} WHERE ({}) <= ({})").format(
            _listed(self._key), sql.SQL(", ").join(replaced), _listed(AGE, "known"), _listed(AGE, "excluded")
        )
        statement = sql.SQL(" ").join((insert, replace))
        async with line.cursor() as cursor:
            await cursor.executemany(statement, [_values(row, columns) for row in rows])


def _listed(names: Sequence[str], *of: str) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(*of, name) for name in names)


def _values(row: Mapping[str, Any], columns: Mapping[str, bool]) -> list[Any]:
    data = row["data"]
    ids = [row[name.removeprefix("weft_")] for name in TYPES if name != "data"]
    return [*ids, _text(data)] + [_cell(data.get(name), number=number) for name, number in columns.items()]


def _cell(value: Any, *, number: bool) -> Any:
    """A field as a cell. A column of numbers has nothing where the field is none; ``data`` has it all."""
    if number:
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if value is None:
        return None
    return value.replace("\0", "") if isinstance(value, str) else _text(value)


def _text(value: Any) -> str:
    """A value as JSON without the character NUL, which PostgreSQL cannot keep."""
    text = msgspec.json.encode(value)
    return (msgspec.json.encode(_without_nul(value)) if b"\\u0000" in text else text).decode()


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, Mapping):
        return {key.replace("\0", ""): _without_nul(each) for key, each in value.items()}
    return [_without_nul(each) for each in value] if isinstance(value, list) else value
