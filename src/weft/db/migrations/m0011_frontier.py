"""Where each crawl keeps its URLs."""

from __future__ import annotations

from sqlalchemy import Column, Connection, String
from sqlalchemy.schema import CreateColumn

COLUMNS = {"crawls": (Column("frontier", String(300)),)}


def upgrade(connection: Connection) -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            declared = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {declared}")
