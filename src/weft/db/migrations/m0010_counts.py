"""Counters that only grow: what was counted a moment ago, and what that came to."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, PrimaryKeyConstraint, String, Table
from sqlalchemy.schema import CreateColumn

from weft.db.dialect_options import add_dialect_options
from weft.db.schema.columns import Id, Json, Moment, Name

metadata = MetaData()
"""As they were when this step was written: the schema of today may have more."""

ADDED = {"run_stats": (Column("counted", Json),)}

count_entries = Table(
    "count_entries",
    metadata,
    Column("id", Id, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("worker", Name, nullable=False),
    Column("counted", Json, nullable=False),
    sqlite_autoincrement=True,
)

counts = Table(
    "counts",
    metadata,
    Column("step", Integer, autoincrement=False),
    Column("at", Moment, autoincrement=False),
    Column("project", Name),
    Column("name", Name),
    Column("worker", Name),
    Column("metric", String(60)),
    Column("value", BigInteger, nullable=False),
    PrimaryKeyConstraint("step", "at", "project", "name", "worker", "metric"),
)


def upgrade(connection: Connection) -> None:
    add_dialect_options(metadata, connection.dialect.name)
    metadata.create_all(connection)
    for table, columns in ADDED.items():
        for column in columns:
            declared = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {declared}")
