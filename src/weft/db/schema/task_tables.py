"""Tasks, when they fire, and what they wait for."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, PrimaryKeyConstraint, String, UniqueConstraint

from weft.db.schema.columns import Id, Json, Moment, Name, sparse, table

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
