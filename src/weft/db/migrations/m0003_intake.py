"""What Scrapyd's clients call runs, messages that could not become a run, and where to tell how one ended."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, Index, Integer, MetaData, PrimaryKeyConstraint, String, Table, Text

from weft.db.dialect_options import add_dialect_options
from weft.db.schema.columns import Blob, Id, Moment, Name

metadata = MetaData()
"""As they were when this step was written: the schema of today may have more."""


def _table(name: str, *parts: Any, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


scrapyd_jobs = _table(
    "scrapyd_jobs",
    Column("project", Name),
    Column("job", String(200)),
    Column("run_id", Id, nullable=False),
    PrimaryKeyConstraint("project", "job"),
    Index("scrapyd_jobs_by_run", "run_id", unique=True),
    Index("scrapyd_jobs_by_job", "job"),
)

letters = _table(
    "letters",
    Column("id", Id, primary_key=True),
    Column("source", String(200), nullable=False),
    Column("message_id", String(200), nullable=False),
    Column("project", Name),
    Column("headers", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", String(12), nullable=False),
    Column("run_id", Id),
    Column("revision", Integer, nullable=False),
    Column("received_at", Moment, nullable=False),
    Column("changed_at", Moment, nullable=False),
    Column("body", Blob, nullable=False),
    Column("original", Blob),
    Index("letters_by_state", "state", "id"),
    Index("letters_by_project", "project", "state", "id"),
    Index("letters_by_message", "source", "message_id"),
    sqlite_autoincrement=True,
)

replies = _table(
    "replies",
    Column("run_id", Id, primary_key=True, autoincrement=False),
    Column("source", String(200), nullable=False),
    Column("reply_to", String(250), nullable=False),
    Column("task_id", String(200), nullable=False),
    Column("correlation_id", String(250), nullable=False),
    Index("replies_by_source", "source", "run_id"),
)


def upgrade(connection: Connection) -> None:
    add_dialect_options(metadata, connection.dialect.name)
    metadata.create_all(connection)
