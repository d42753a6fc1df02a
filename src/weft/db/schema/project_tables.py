"""Projects and their deployed code; their tasks, when these fire, and what they wait for."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    UniqueConstraint,
)

from weft.db.schema.columns import Digest, Id, Json, Moment, Name, sparse, table

projects = table(
    "projects",
    Column("name", Name, primary_key=True),
    Column("weight", Double, nullable=False),
    Column("max_queued", Integer),
    Column("current_version", Name),  # what its runs execute unless they say otherwise
    Column("min_isolation", String(4)),  # runs of a lower level are refused
    Column("keep_days", Double),  # how long its runs' items and logs are kept; NULL: for ever
    Column("success_if", Json),  # when its spiders' runs have succeeded; NULL: as they say themselves
    Column("spiders", Json),  # what holds for one of its spiders, by name; NULL: nothing
    Column("may_run_unsandboxed", Boolean),  # whether its runs may ask for no sandbox; NULL: no
    Column("may_build", Boolean),  # whether packages may be built for it from source; NULL: no
    Column("spider_env", Json),  # the variables of the workers' environments that its runs see; NULL: none
    Column("grace_seconds", Double),  # how long a stopped run of it may take to end, where its task does not say
    Column("network", Json),  # what its code may connect to: all, none or TCP ports; NULL: all
)

versions = table(
    "versions",  # deployed code; a row is there once the code was checked, and never changes
    Column("project", Name),
    Column("version", Name),
    Column("digest", Digest, nullable=False),  # of the archive, whose blob is code/<digest>
    Column("size", BigInteger, nullable=False),
    Column("format", String(10), nullable=False),
    Column("code", Json, nullable=False),  # what a run needs to know of it (projects/model.py: Code)
    Column("spiders", Json, nullable=False),
    Column("deployed_at", Moment, nullable=False),
    Column("deployed_by", String(120), nullable=False),
    Column("own_settings", Json),  # what its settings module says, secrets masked; NULL: deployed before that was kept
    Column("warnings", Json),  # what a look at its source has found; NULL: deployed before that was done
    PrimaryKeyConstraint("project", "version"),
    Index("versions_by_digest", "digest"),
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
    reuses_ids=False,  # the id of a deleted task is never another's
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
    "arrivals",  # upstream tasks that have ended, until all that a task waits for are there
    Column("task_id", Id),
    Column("flow", String(64)),
    Column("upstream_id", Id),
    Column("run_id", Id, nullable=False),
    Column("met", Boolean, nullable=False),
    PrimaryKeyConstraint("task_id", "flow", "upstream_id"),
)
