"""What reaches the spiders of a project, how long they may take to close, and what a look at the source of a version
has found."""

from __future__ import annotations

from sqlalchemy import Column, Connection, Double
from sqlalchemy.schema import CreateColumn

from weft.db.schema.columns import Json

COLUMNS = {
    "projects": (Column("spider_env", Json), Column("grace_seconds", Double)),
    "versions": (Column("warnings", Json),),
}


def upgrade(connection: Connection) -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            declared = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {declared}")
