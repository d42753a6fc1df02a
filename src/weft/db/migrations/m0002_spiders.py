"""Code, items and what they are seen of; pauses of runs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.schema import CreateColumn

from weft.db.dialect_options import add_dialect_options
from weft.db.schema.columns import Digest, Id, Json, Moment, Name

metadata = MetaData()
"""As they were when this step was written: the schema of today may have more."""


def _table(name: str, *parts: Any, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


def _sparse(name: str, first: Column[Any]) -> Index:
    return Index(name, first, info={"sparse": first})


thing_ids = Sequence("thing_ids", metadata=metadata)

versions = _table(
    "versions",
    Column("project", Name),
    Column("version", Name),
    Column("digest", Digest, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("format", String(10), nullable=False),
    Column("code", Json, nullable=False),
    Column("spiders", Json, nullable=False),
    Column("deployed_at", Moment, nullable=False),
    Column("deployed_by", String(120), nullable=False),
    PrimaryKeyConstraint("project", "version"),
    Index("versions_by_digest", "digest"),
)

run_stats = _table(
    "run_stats",
    Column("run_id", Id),
    Column("attempt", Integer),
    Column("dataset_id", Id),
    Column("next_seq", BigInteger, nullable=False),
    Column("items", BigInteger, nullable=False),
    Column("new_things", BigInteger, nullable=False),
    Column("changed_things", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("invalid", BigInteger, nullable=False),
    Column("stats", Json, nullable=False),
    Column("profile", Json),
    Column("drift", Json),
    Column("uncompared", Id),
    Column("at", Moment, nullable=False),
    Column("told_at", Moment, nullable=False),
    PrimaryKeyConstraint("run_id", "attempt"),
    Index("run_stats_by_dataset", "dataset_id", "run_id", "attempt"),
)
_sparse("run_stats_uncompared", run_stats.c.uncompared)

datasets = _table(
    "datasets",
    Column("id", Id, primary_key=True),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("key_fields", Json, nullable=False),
    Column("schema", Json),
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("project", "name"),
    sqlite_autoincrement=True,
)

things = _table(
    "things",
    Column("id", Id, primary_key=True, autoincrement=False),
    Column("dataset_id", Id, nullable=False),
    Column("key", String(32), nullable=False),
    Column("digest", String(32), nullable=False),
    Column("looks", Integer, nullable=False),
    Column("seen", BigInteger, nullable=False),
    Column("first_seen_at", Moment, nullable=False),
    Column("last_seen_at", Moment, nullable=False),
    Column("last_run_id", Id, nullable=False),
    UniqueConstraint("dataset_id", "key"),
    Index("things_by_dataset", "dataset_id", "id"),
    info={"full_percent": 50},
)

looks = _table(
    "looks",
    Column("thing_id", Id),
    Column("number", Integer),
    Column("data", Json, nullable=False),
    Column("at", Moment, nullable=False),
    Column("run_id", Id, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("thing_id", "number"),
    Index("looks_by_run", "run_id", "thing_id", "number"),
)

items = _table(
    "items",
    Column("run_id", Id),
    Column("attempt", Integer),
    Column("seq", BigInteger),
    Column("thing_id", Id, nullable=False),
    Column("look", Integer, nullable=False),
    Column("at", Moment, nullable=False),
    PrimaryKeyConstraint("run_id", "attempt", "seq"),
)

destinations = _table(
    "destinations",
    Column("id", Id, primary_key=True),
    Column("dataset_id", Id, nullable=False),
    Column("url", String(2000), nullable=False),
    Column("format", String(10), nullable=False),
    Column("fields", Json, nullable=False),
    Column("problem", Text),
    Column("failures", Integer, nullable=False),
    Column("next_at", Moment, nullable=False),
    Column("delivered", BigInteger, nullable=False),
    Column("delivered_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("created_by", String(120), nullable=False),
    Index("destinations_by_dataset", "dataset_id"),
    sqlite_autoincrement=True,
)

destination_marks = _table(
    "destination_marks",
    Column("destination_id", Id),
    Column("run_id", Id),
    Column("attempt", Integer),
    Column("delivered", BigInteger, nullable=False),
    Column("sending", BigInteger, nullable=False),
    Column("since", Moment, nullable=False),
    PrimaryKeyConstraint("destination_id", "run_id", "attempt"),
)

ADDED = {
    "projects": (Column("current_version", Name), Column("min_isolation", String(4)), Column("keep_days", Double)),
    "runs": (Column("pause_requested", Boolean),),
    "webhooks": (
        Column("failures", Integer),
        Column("pause_seconds", Double),
        Column("open_until", Moment),
        Column("probe_until", Moment),
    ),
}
"""Columns that tables have since; each may be NULL."""


def upgrade(connection: Connection) -> None:
    add_dialect_options(metadata, connection.dialect.name)
    metadata.create_all(connection)
    for table, columns in ADDED.items():
        for column in columns:
            declared = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {declared}")
