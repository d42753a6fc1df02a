"""Queries of the comparer: which finished runs were not compared yet, and what they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, select, update

from weft.db import schema
from weft.db.database import Transaction

run_stats, runs = schema.run_stats, schema.runs


def uncompared(tx: Transaction, limit: int) -> Sequence[Any]:
    """Attempts that were not looked at since they began, with the state of their run."""
    query = select(run_stats, runs.c.state, runs.c.project, runs.c.task_id, runs.c.started_at, runs.c.finished_at)
    query = query.add_columns(runs.c.attempt.label("last_attempt"))
    query = query.join(runs, runs.c.id == run_stats.c.run_id).where(run_stats.c.uncompared.is_not(None))
    over = runs.c.finished_at.is_not(None) | (runs.c.attempt > run_stats.c.attempt)
    return tx.rows(query.where(over).order_by(run_stats.c.uncompared).limit(limit))


def profiles_before(tx: Transaction, dataset_id: int, run_id: int, limit: int) -> list[str]:
    """The profiles of the newest runs of a dataset before this one."""
    query = select(run_stats.c.profile).where(
        run_stats.c.dataset_id == dataset_id, run_stats.c.run_id < run_id, run_stats.c.profile.is_not(None)
    )
    return [row.profile for row in tx.rows(query.order_by(run_stats.c.run_id.desc()).limit(limit))]


def compared(tx: Transaction, run_id: int, attempt: int, profile: str | None, drift: str | None) -> None:
    """Keep what was found; the attempt is not looked at again."""
    this = and_(run_stats.c.run_id == run_id, run_stats.c.attempt == attempt)
    tx.execute(update(run_stats).where(this).values(profile=profile, drift=drift, uncompared=None))
