"""What a project's code is trusted with: to run without a sandbox, and to have packages built."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Connection
from sqlalchemy.schema import CreateColumn

COLUMNS = {"projects": (Column("may_run_unsandboxed", Boolean), Column("may_build", Boolean))}


def upgrade(connection: Connection) -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            declared = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {declared}")
