"""Crawls of whole sites: what is to be fetched, from whom, and what was left out."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

from weft.db.dialect_options import add_dialect_options
from weft.db.schema.columns import Id, Json, Moment, Name, sparse

metadata = MetaData()
"""As they were when this step was written: the schema of today may have more."""


def _table(name: str, *parts: Any, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


crawls = _table(
    "crawls",
    Column("id", Id, primary_key=True),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("run_id", Id),
    Column("spec", Json, nullable=False),
    Column("state", String(10), nullable=False),
    Column("reason", Text, nullable=False),
    Column("seeded", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", String(120), nullable=False),
    Column("ended_at", Moment),
    Column("hungry_at", Moment, nullable=False),
    Index("crawls_by_project", "project", "id"),
    Index("crawls_by_run", "run_id", unique=True),
    Index("crawls_by_state", "state", "id"),
    sqlite_autoincrement=True,
)

crawl_skips = _table(
    "crawl_skips",
    Column("crawl_id", Id),
    Column("digest", String(32)),
    Column("reason", String(60), nullable=False),
    Column("host", String(300), nullable=False),
    Column("pattern", Text, nullable=False),
    Column("example", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("is_trap", Boolean, nullable=False),
    PrimaryKeyConstraint("crawl_id", "digest"),
)

hosts = _table(
    "hosts",
    Column("id", Id, primary_key=True),
    Column("name", String(300), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("crawl_id", Id),
    Column("holder", String(120), nullable=False),
    Column("leased_until", Moment, nullable=False),
    Column("wanted_by", Id),
    Column("wanted_until", Moment, nullable=False),
    Column("next_at", Moment, nullable=False),
    Column("state", Json, nullable=False),
    Index("hosts_by_name", "name", unique=True),
    sqlite_autoincrement=True,
    info={"full_percent": 50},
)

crawl_hosts = _table(
    "crawl_hosts",
    Column("crawl_id", Id),
    Column("host_id", Id),
    Column("name", String(300), nullable=False),
    Column("waiting", Id),
    Column("ready_at", Moment, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("held", Json, nullable=False),
    Column("from_rank", BigInteger, nullable=False),
    Column("to_rank", BigInteger, nullable=False),
    Column("queued", BigInteger, nullable=False),
    Column("later", BigInteger, nullable=False),
    Column("later_at", Moment, nullable=False),
    Column("leased", BigInteger, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    Column("taken", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    PrimaryKeyConstraint("crawl_id", "host_id"),
)
sparse("crawl_hosts_waiting", crawl_hosts.c.waiting, crawl_hosts.c.ready_at, crawl_hosts.c.host_id)

crawl_limits = _table(
    "crawl_limits",
    Column("crawl_id", Id, primary_key=True, autoincrement=False),
    Column("pages", BigInteger, nullable=False),
    Column("pages_per_host", BigInteger, nullable=False),
    Column("given", BigInteger, nullable=False),
)

urls = _table(
    "urls",
    Column("crawl_id", Id),
    Column("key", BigInteger, autoincrement=False),
    Column("host_id", Id, nullable=False),
    Column("url", Text, nullable=False),
    Column("data", Json),
    Column("state", String(8), nullable=False),
    Column("line", Id),
    Column("rank", BigInteger, nullable=False),
    Column("missed", Id),
    Column("depth", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at", Moment, nullable=False),
    Column("found_on", BigInteger, nullable=False),
    Column("reason", String(200), nullable=False),
    Column("status", Integer, nullable=False),
    Column("fetched_at", Moment, nullable=False),
    Column("etag", String(200), nullable=False),
    Column("last_modified", String(100), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("interval", Float(53), nullable=False),
    Column("size", BigInteger, nullable=False),
    PrimaryKeyConstraint("crawl_id", "key"),
)
sparse("urls_in_line", urls.c.line, urls.c.crawl_id, urls.c.rank)
sparse("urls_missed", urls.c.missed, urls.c.state, urls.c.key)


def upgrade(connection: Connection) -> None:
    add_dialect_options(metadata, connection.dialect.name)
    metadata.create_all(connection)
