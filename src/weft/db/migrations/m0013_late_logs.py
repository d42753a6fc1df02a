"""From where on the log of an attempt that was given up as lost came late."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection
from sqlalchemy.schema import CreateColumn

COLUMNS = {"runs": (Column("late_from", BigInteger),), "attempts": (Column("late_from", BigInteger),)}


def upgrade(connection: Connection) -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            declared = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {declared}")
