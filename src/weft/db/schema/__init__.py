"""Every table of weft. A column is added here, in a migration, and in the store that reads it.

Moments are microseconds since 1970 (``clock``); what has no fixed shape is JSON text. One file for each kind of thing.
"""

from __future__ import annotations

from weft.db.schema.access_tables import (
    api_keys,
    audit,
    grants,
    guest_links,
    login_failures,
    secrets,
    sessions,
    users,
    views,
)
from weft.db.schema.columns import metadata
from weft.db.schema.crawl_tables import (
    crawl_hosts,
    crawl_limits,
    crawl_skips,
    crawls,
    hosts,
    proxy_exits,
    proxy_plans,
    proxy_sites,
    proxy_spending,
    urls,
)
from weft.db.schema.event_tables import cursors, deliveries, events, inbox, webhooks
from weft.db.schema.intake_tables import dead_letters, replies, scrapyd_jobs
from weft.db.schema.item_tables import (
    datasets,
    destination_marks,
    destinations,
    items,
    records,
    revisions,
    run_stats,
    samples,
)
from weft.db.schema.project_tables import arrivals, dependencies, projects, schedules, tasks, ticks, versions
from weft.db.schema.run_tables import attempts, dedup_keys, idempotency_keys, lanes, limits, log_chunks, runs, workers
from weft.db.schema.system_tables import (
    count_entries,
    counts,
    event_ids,
    leaders,
    record_ids,
    run_ids,
    schema_version,
    sequences,
)

FIRST_VERSION = 20
"""The schema of the first release; those before it were never released, and have no migrations."""
VERSION = FIRST_VERSION
"""The number of the newest migration."""

__all__ = [
    "FIRST_VERSION",
    "VERSION",
    "api_keys",
    "arrivals",
    "attempts",
    "audit",
    "count_entries",
    "counts",
    "crawl_hosts",
    "crawl_limits",
    "crawl_skips",
    "crawls",
    "cursors",
    "datasets",
    "dead_letters",
    "dedup_keys",
    "deliveries",
    "dependencies",
    "destination_marks",
    "destinations",
    "event_ids",
    "events",
    "grants",
    "guest_links",
    "hosts",
    "idempotency_keys",
    "inbox",
    "items",
    "lanes",
    "leaders",
    "limits",
    "log_chunks",
    "login_failures",
    "metadata",
    "projects",
    "proxy_exits",
    "proxy_plans",
    "proxy_sites",
    "proxy_spending",
    "record_ids",
    "records",
    "replies",
    "revisions",
    "run_ids",
    "run_stats",
    "runs",
    "samples",
    "schedules",
    "schema_version",
    "scrapyd_jobs",
    "secrets",
    "sequences",
    "sessions",
    "tasks",
    "ticks",
    "urls",
    "users",
    "versions",
    "views",
    "webhooks",
    "workers",
]
