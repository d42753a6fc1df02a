"""Events, who has yet to act on them, and webhooks, which hear of them."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Double, Index, Integer, PrimaryKeyConstraint, String, Text

from weft.db.schema.columns import Blob, Id, Json, Moment, Name, sparse, table

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
    Column("failures", Integer),  # this and the next three: its circuit breaker (webhooks/model.py); NULL: closed
    Column("pause_seconds", Double),
    Column("open_until", Moment),
    Column("probe_until", Moment),
    reuses_ids=False,
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
    reuses_ids=False,
)

# How far a reader that takes every event has read, and which ids below that were not there yet (cursor.py).
cursors = table("cursors", Column("reader", String(40), primary_key=True), Column("position", Text, nullable=False))
