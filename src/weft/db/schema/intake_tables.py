"""Runs that come from elsewhere: under the names that Scrapyd's clients gave them, and out of message queues."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, PrimaryKeyConstraint, String, Text

from weft.db.schema.columns import Blob, Id, Moment, Name, table

scrapyd_jobs = table(
    "scrapyd_jobs",  # what a run is called in Scrapyd's API; a run without a row is called after its number
    Column("project", Name),
    Column("job", String(200)),
    Column("run_id", Id, nullable=False),
    PrimaryKeyConstraint("project", "job"),
    Index("scrapyd_jobs_by_run", "run_id", unique=True),
    Index("scrapyd_jobs_by_job", "job"),
)

dead_letters = table(
    "dead_letters",  # messages that could not become a run, and why
    Column("id", Id, primary_key=True),
    Column("source", String(200), nullable=False),  # the queue or stream that it came from
    Column("message_id", String(200), nullable=False),
    Column("project", Name),  # NULL: nobody can tell
    Column("headers", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", String(12), nullable=False),  # dead, resubmitted, dropped
    Column("run_id", Id),
    Column("revision", Integer, nullable=False),
    Column("received_at", Moment, nullable=False),
    Column("changed_at", Moment, nullable=False),
    Column("body", Blob, nullable=False),  # last: what stands behind ten megabytes takes long to read in SQLite
    Column("original", Blob),  # as it came, where somebody has edited it
    Index("dead_letters_by_state", "state", "id"),
    Index("dead_letters_by_project", "project", "state", "id"),
    Index("dead_letters_by_message", "source", "message_id"),
    reuses_ids=False,
)

replies = table(
    "replies",  # where to tell how a run ended
    Column("run_id", Id, primary_key=True, autoincrement=False),
    Column("source", String(200), nullable=False),
    Column("reply_to", String(250), nullable=False),
    Column("task_id", String(200), nullable=False),  # as the sender calls it
    Column("correlation_id", String(250), nullable=False),
    Index("replies_by_source", "source", "run_id"),
)
