"""Runs: what waits, what runs, and how each attempt ended.

A column that is NULL most of the time keeps its index small: of a run, ``ready_lane``, ``lease_worker`` and
``not_before`` are set only while it is ready, running or waiting, ``live_task`` (its task) until it has ended,
``trouble`` only where something stands out: its outcome if that was not success, ``marked`` if it succeeded with marks,
``paused`` while it is. So finding work, or what went wrong, costs the same however many runs have ended well.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, PrimaryKeyConstraint, String, Text

from weft.db.schema.columns import Blob, Id, Json, Moment, Name, sparse, table

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
    Column("pause_requested", Boolean),
    Column("queued_at", Moment, nullable=False),
    Column("started_at", Moment),
    Column("finished_at", Moment),
    Column("outcome", String(12)),
    Column("reason", Text),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("result", Json),
    Column("items", BigInteger),  # with those that follow: what its last attempt has counted; NULL: nobody knows
    Column("pages", BigInteger),
    Column("requests", BigInteger),
    Column("errors", BigInteger),
    Column("warnings", BigInteger),
    Column("finish_reason", String(200)),  # of its spider, as Scrapy calls it
    Column("marks", Json),  # of a run that succeeded: what does not look like success (runs/success.py)
    Column("conditions", Json),  # what became of each success condition; NULL: it was under none
    Column("log_key", String(200)),
    Column("log_bytes", BigInteger),
    Column("late_from", BigInteger),  # the byte from which on its log came after its attempt was lost; NULL: none did
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
    Column("late_from", BigInteger),
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
    reuses_ids=False,  # nor that of a worker: it stands for its leases
)
