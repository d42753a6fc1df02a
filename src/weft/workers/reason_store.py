"""The SQL of why runs wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select

from weft.db import schema
from weft.db.database import Transaction
from weft.runs.model import RunState

runs, limits = schema.runs, schema.limits


def queued(tx: Transaction, run_ids: Collection[int]) -> Sequence[Any]:
    """What of each run says why it waits; those that do not are left out."""
    columns = (runs.c.id, runs.c.task, runs.c.ready_lane, runs.c.not_before, runs.c.attempt)
    return tx.rows(select(*columns).where(runs.c.id.in_(run_ids), runs.c.state == RunState.QUEUED.value))


def places(tx: Transaction, keys: Collection[str]) -> dict[str, tuple[int, int]]:
    """How many runs each of these limits allows, and how many take a place under it."""
    rows = tx.rows(select(limits.c.key, limits.c.max_running, limits.c.in_use).where(limits.c.key.in_(keys)))
    return {row.key: (row.max_running, row.in_use) for row in rows}
