"""Curves of runs, links for guests, and filters with a name."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

from weft.db.dialect_options import add_dialect_options
from weft.db.schema.columns import Id, Moment, Name

metadata = MetaData()
"""As they were when this step was written: the schema of today may have more."""


def _table(name: str, *parts: Any, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


samples = _table(
    "samples",
    Column("run_id", Id, autoincrement=False),
    Column("attempt", Integer),
    Column("at", Moment),
    Column("items", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("memory", BigInteger, nullable=False),
    PrimaryKeyConstraint("run_id", "attempt", "at"),
)

shares = _table(
    "shares",
    Column("id", Id, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("project", Name, nullable=False),
    Column("dataset", Name),
    Column("label", String(200), nullable=False),
    Column("created_by", Name, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("revoked_at", Moment),
    Column("used_at", Moment),
    Index("shares_by_digest", "digest", unique=True),
    Index("shares_by_project", "project"),
    sqlite_autoincrement=True,
)

views = _table(
    "views",
    Column("id", Id, primary_key=True),
    Column("page", String(40), nullable=False),
    Column("name", Name, nullable=False),
    Column("query", Text, nullable=False),
    Column("created_by", Name, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("views_by_name", "page", "name", unique=True),
    sqlite_autoincrement=True,
)


def upgrade(connection: Connection) -> None:
    add_dialect_options(metadata, connection.dialect.name)
    metadata.create_all(connection)
