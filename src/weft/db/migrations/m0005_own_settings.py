"""The settings that a version's code makes itself."""

from __future__ import annotations

from sqlalchemy import Column, Connection
from sqlalchemy.schema import CreateColumn

from weft.db.schema.columns import Json


def upgrade(connection: Connection) -> None:
    declared = CreateColumn(Column("own_settings", Json)).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE versions ADD COLUMN {declared}")
