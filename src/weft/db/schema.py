"""Every table of weft, on one page.

A column is added here, in a migration, and in the store that reads it. Moments are microseconds since 1970 (``clock``);
what has no fixed shape is JSON text. A column that is NULL most of the time keeps its index small: of a run,
``ready_lane``, ``lease_worker`` and ``not_before`` are set only while it is ready, running or waiting, ``live_task``
(its task) until it has ended, ``trouble`` (its outcome) only if that was not success. So finding work, or what went
wrong, costs the same however many runs have ended well.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    String,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 1
"""The number of the newest migration."""

metadata = MetaData()

Id = BigInteger().with_variant(Integer(), "sqlite")
Moment = BigInteger
Json = Text().with_variant(Text(2**24 - 1), "mysql", "mariadb")
Blob = LargeBinary().with_variant(LargeBinary(2**24 - 1), "mysql", "mariadb")
Name = String(100)


def table(name: str, *parts: Any, **options: Any) -> Table:
    """A table whose text compares byte by byte on every database (``dress.py``)."""
    return Table(name, metadata, *parts, **options)


def sparse(name: str, first: Column[Any], *rest: Any) -> Index:
    """An index over the rows where ``first`` is set; MySQL, which has no such thing, indexes all."""
    return Index(name, first, *rest, info={"sparse": first})


# Ids are reserved before rows are written, so that a batch can be composed whole (db/bulk.py).
run_ids = Sequence("run_ids", metadata=metadata)
event_ids = Sequence("event_ids", metadata=metadata)

sequences = table(
    "sequences",  # for SQLite, which has no sequences
    Column("name", String(40), primary_key=True),
    Column("last", Id, nullable=False),
)

schema_version = table("schema_version", Column("version", Integer, primary_key=True, autoincrement=False))

leaders = table(
    "leaders",  # who does the work that one process is enough for; safety never rests on it
    Column("role", String(40), primary_key=True),
    Column("holder", String(100), nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("beats", BigInteger, nullable=False),
)

projects = table(
    "projects",
    Column("name", Name, primary_key=True),
    Column("weight", Double, nullable=False),
    Column("max_queued", Integer),
)

lanes = table(
    "lanes",  # runs in one lane are under the same rules, so they wait in one line
    Column("id", Id, primary_key=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("project", Name, nullable=False),
    Column("labels", Json, nullable=False),
    Column("limits", Json, nullable=False),
)

limits = table(
    "limits",  # how many runs of a task, tag or project may run at once; counted where the run changes state
    Column("key", String(220), primary_key=True),
    Column("max_running", Integer, nullable=False),
    Column("in_use", Integer, nullable=False),
)

runs = table(
    "runs",
    Column("id", Id, primary_key=True, autoincrement=False),
    Column("project", Name, nullable=False),
    Column("task_id", Id),
    Column("task", Name, nullable=False),
    Column("kind", Name, nullable=False),
    Column("spec", Json, nullable=False),
    Column("trigger", String(20), nullable=False),
    Column("fire_at", Moment),
    Column("correlation_id", String(64), nullable=False),
    Column("traceparent", String(60), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("lane_id", Id, nullable=False),
    Column("state", String(10), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("ready_lane", Id),
    Column("not_before", Moment),
    Column("lease_worker", Id),
    Column("worker", Name),
    Column("slots", Text),
    Column("cancel_requested", Boolean, nullable=False),
    Column("queued_at", Moment, nullable=False),
    Column("started_at", Moment),
    Column("finished_at", Moment),
    Column("outcome", String(12)),
    Column("reason", Text),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("result", Json),
    Column("log_key", String(200)),
    Column("log_bytes", BigInteger),
    Column("live_task", Id),
    Column("trouble", String(12)),
    Index("runs_by_task", "project", "task", "id"),
    Index("runs_by_project", "project", "id"),
    Index("runs_by_flow", "correlation_id", "id"),
)
sparse("runs_ready", runs.c.ready_lane, runs.c.priority.desc(), runs.c.id)
sparse("runs_leased", runs.c.lease_worker)
sparse("runs_waiting", runs.c.not_before)
sparse("runs_live", runs.c.live_task, runs.c.id)
sparse("runs_troubled", runs.c.trouble, runs.c.id)

attempts = table(
    "attempts",  # each attempt that was followed by another, and how it ended; the last one is on the run itself
    Column("run_id", Id),
    Column("attempt", Integer),
    Column("worker", Name),
    Column("started_at", Moment),
    Column("finished_at", Moment, nullable=False),
    Column("outcome", String(12), nullable=False),
    Column("reason", Text),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("log_key", String(200)),
    Column("log_bytes", BigInteger),
    PrimaryKeyConstraint("run_id", "attempt"),
)

log_chunks = table(
    "log_chunks",  # the live log of a running attempt; its blob replaces them at the end
    Column("run_id", Id),
    Column("attempt", Integer),
    Column("seq", Integer),
    Column("data", Blob, nullable=False),
    PrimaryKeyConstraint("run_id", "attempt", "seq"),
)

idempotency_keys = table(
    "idempotency_keys",  # a retried submit finds its first answer here
    Column("project", Name),
    Column("key", String(200)),
    Column("digest", String(64), nullable=False),
    Column("run_id", Id, nullable=False),
    Column("at", Moment, nullable=False),
    PrimaryKeyConstraint("project", "key"),
)

dedup_keys = table(
    "dedup_keys",  # the newest run for each target
    Column("project", Name),
    Column("key", String(64)),
    Column("run_id", Id, nullable=False),
    Column("at", Moment, nullable=False),
    PrimaryKeyConstraint("project", "key"),
)

workers = table(
    "workers",
    Column("id", Id, primary_key=True),
    Column("name", Name, nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", String(40), nullable=False),
    Column("labels", Json, nullable=False),
    Column("capacity", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("beats", BigInteger, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("stats", Json, nullable=False),
    Column("key_id", Id),  # of a worker that came through a gateway: the key that speaks for it
    Column("request_id", String(40), unique=True),  # its join, made again after a lost answer, is the same join
    Index("workers_by_state", "state", "id"),
    sqlite_autoincrement=True,  # nor that of a worker: it stands for its leases
)

tasks = table(
    "tasks",
    Column("id", Id, primary_key=True),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("kind", Name, nullable=False),
    Column("definition", Json, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    UniqueConstraint("project", "name"),
    sqlite_autoincrement=True,  # the id of a deleted task is never another's
)

schedules = table(
    "schedules",  # when a task fires next; next_fire_at is the identity of that tick
    Column("task_id", Id, primary_key=True, autoincrement=False),
    Column("definition", Json, nullable=False),
    Column("next_fire_at", Moment),
    Column("missed", BigInteger, nullable=False),
)
sparse("schedules_due", schedules.c.next_fire_at)

ticks = table(
    "ticks",  # one row for each moment that a schedule was due, and what came of it
    Column("task_id", Id),
    Column("fire_at", Moment),
    Column("run_id", Id),
    Column("outcome", String(20), nullable=False),
    Column("at", Moment, nullable=False),
    PrimaryKeyConstraint("task_id", "fire_at"),
)

dependencies = table(
    "dependencies",  # task_id runs after upstream_id has ended as `on` says; by_flow: both stem from one start
    Column("task_id", Id),
    Column("upstream_id", Id),
    Column("on", String(10), nullable=False),
    Column("by_flow", Boolean, nullable=False),
    PrimaryKeyConstraint("task_id", "upstream_id"),
    Index("dependencies_by_upstream", "upstream_id"),
)

arrivals = table(
    "arrivals",  # forerunners that have ended, until all that a task waits for are there
    Column("task_id", Id),
    Column("flow", String(64)),
    Column("upstream_id", Id),
    Column("run_id", Id, nullable=False),
    Column("met", Boolean, nullable=False),
    PrimaryKeyConstraint("task_id", "flow", "upstream_id"),
)

events = table(
    "events",
    Column("id", Id, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("project", Name, nullable=False),
    Column("run_id", Id),
    Column("task_id", Id),
    Column("data", Json),
)
sparse("events_by_run", events.c.run_id, events.c.id)

inbox = table(
    "inbox",  # events that a reader has yet to act on; deleted by the reader in the transaction that acts
    Column("reader", String(40)),
    Column("event_id", Id),
    PrimaryKeyConstraint("reader", "event_id"),
)

users = table(
    "users",
    Column("id", Id, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("password", String(200), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    sqlite_autoincrement=True,  # nor that of a user or a key: grants stand for it
)

api_keys = table(
    "api_keys",  # of programs, of workers, and those that are good for making one worker key
    Column("id", Id, primary_key=True),
    Column("kind", String(10), nullable=False),
    Column("prefix", String(20), nullable=False, unique=True),
    Column("digest", String(64), nullable=False),
    Column("name", Name, nullable=False),
    Column("created_by", Name, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("last_used_at", Moment),
    Column("revoked_at", Moment),
    Column("labels", Json),  # those that its worker may claim; NULL for any
    Column("public_key", String(44)),  # of a service that signs its own tokens instead of sending a secret
    sqlite_autoincrement=True,
)

grants = table(
    "grants",  # the role of a user or key in a project, or in all of them ("*")
    Column("kind", String(10)),
    Column("subject_id", Id),
    Column("project", Name),
    Column("role", String(12), nullable=False),
    PrimaryKeyConstraint("kind", "subject_id", "project"),
)

sessions = table(
    "sessions",  # of people in a browser; the id itself is known only to the browser
    Column("digest", String(64), primary_key=True),
    Column("user_id", Id, nullable=False),
    Column("csrf", String(64), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("address", String(64), nullable=False),
    Column("agent", String(200), nullable=False),
    Index("sessions_by_user", "user_id"),
)

login_failures = table(
    "login_failures",  # for a while, so that passwords cannot be tried one after another
    Column("subject", String(200), primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("blocked_until", Moment, nullable=False),
    Column("at", Moment, nullable=False),
)

secrets = table(
    "secrets",  # sealed with a key of their own, which is sealed with the key of this weft
    Column("project", Name),
    Column("name", Name),
    Column("key_id", String(40), nullable=False),
    Column("sealed_key", Blob, nullable=False),
    Column("sealed", Blob, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("updated_by", Name, nullable=False),
    PrimaryKeyConstraint("project", "name"),
)

audit = table(
    "audit",  # what people and programs did; each row carries the digest of the one before it
    Column("id", Id, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("actor", String(120), nullable=False),
    Column("address", String(64), nullable=False),
    Column("action", String(60), nullable=False),
    Column("project", Name, nullable=False),
    Column("target", String(250), nullable=False),
    Column("data", Json),
    Column("previous", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Index("audit_by_project", "project", "id"),
    Index("audit_by_actor", "actor", "id"),
)

webhooks = table(
    "webhooks",
    Column("id", Id, primary_key=True),
    Column("project", Name, nullable=False),
    Column("url", String(2000), nullable=False),
    Column("kinds", Json, nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("sealed_key", Blob, nullable=False),
    Column("sealed", Blob, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Name, nullable=False),
    sqlite_autoincrement=True,
)

deliveries = table(
    "deliveries",  # an event on its way to a webhook, and how that went
    Column("id", Id, primary_key=True),
    Column("webhook_id", Id, nullable=False),
    Column("event_id", Id, nullable=False),
    Column("state", String(10), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at", Moment),
    Column("status", Integer),
    Column("problem", Text),
    Column("created_at", Moment, nullable=False),
    Column("finished_at", Moment),
    Index("deliveries_by_webhook", "webhook_id", "id"),
    Index("deliveries_due", "webhook_id", "next_at"),
    sqlite_autoincrement=True,
)

# How far a reader that takes every event has read, and which ids below that were not there yet (live/position.py).
cursors = table("cursors", Column("reader", String(40), primary_key=True), Column("position", Text, nullable=False))
