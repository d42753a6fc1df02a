"""Proxies: the plans of projects, where each site and each exit stands, and what was spent."""

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
)

from weft.db.dialect_options import add_dialect_options
from weft.db.schema.columns import Id, Json, Moment, Name

metadata = MetaData()
"""As they were when this step was written: the schema of today may have more."""


def _table(name: str, *parts: Any, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


proxy_plans = _table(
    "proxy_plans",
    Column("id", Id, primary_key=True),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("plan", Json, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("told", String(40), nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("updated_by", String(120), nullable=False),
    Index("proxy_plans_by_name", "project", "name", unique=True),
    sqlite_autoincrement=True,
)

proxy_sites = _table(
    "proxy_sites",
    Column("plan_id", Id),
    Column("site", String(300)),
    Column("rung", Integer, nullable=False),
    Column("state", Json, nullable=False),
    Column("updated_at", Moment, nullable=False),
    PrimaryKeyConstraint("plan_id", "site"),
)

proxy_exits = _table(
    "proxy_exits",
    Column("plan_id", Id),
    Column("exit", Name),
    Column("state", Json, nullable=False),
    Column("updated_at", Moment, nullable=False),
    PrimaryKeyConstraint("plan_id", "exit"),
)

proxy_spending = _table(
    "proxy_spending",
    Column("plan_id", Id),
    Column("day", Integer, autoincrement=False),
    Column("site", String(300)),
    Column("exit", Name),
    Column("requests", BigInteger, nullable=False),
    Column("sent", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("ok", BigInteger, nullable=False),
    Column("soft_block", BigInteger, nullable=False),
    Column("hard_block", BigInteger, nullable=False),
    Column("proxy_error", BigInteger, nullable=False),
    Column("origin_error", BigInteger, nullable=False),
    Column("empty", BigInteger, nullable=False),
    PrimaryKeyConstraint("plan_id", "day", "site", "exit"),
)


def upgrade(connection: Connection) -> None:
    add_dialect_options(metadata, connection.dialect.name)
    metadata.create_all(connection)
