"""Queries that put a run beside those before it. Each looks at a bounded number of rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import select

from weft.db import schema
from weft.db.database import Transaction
from weft.items.store import whole_attempts
from weft.runs.model import ENDED, Run

runs, run_stats = schema.runs, schema.run_stats

LOOKED_AT = 40
"""Of so many runs before this one those are chosen that it is compared with."""


def ended_before(tx: Transaction, run: Run) -> list[Any]:
    """Runs of the same task, or of the same spider, that were executed and have ended, newest first."""
    columns = [runs.c.id, runs.c.kind, runs.c.task_id, runs.c.state, runs.c.started_at, runs.c.finished_at]
    if run.task_id is None:  # of runs without a task only their name is sure to be the same
        columns.append(runs.c.spec)
    same = (runs.c.project == run.project) & (runs.c.task == run.task) & (runs.c.id < run.id)
    rows = tx.rows(select(*columns).where(same).order_by(runs.c.id.desc()).limit(LOOKED_AT))
    return [row for row in rows if row.state in ENDED and None not in (row.started_at, row.finished_at)]


def stats_of(tx: Transaction, run_ids: Collection[int]) -> dict[int, Sequence[Any]]:
    """For each run the rows of those attempts that together are what it has yielded, the last one last."""
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c["items"].label("yielded"), run_stats.c.stats)
    query = select(*columns, run_stats.c.profile, run_stats.c.drift).where(run_stats.c.run_id.in_(run_ids))
    found: dict[int, list[Any]] = {}
    for row in tx.rows(query.order_by(run_stats.c.run_id, run_stats.c.attempt)):
        found.setdefault(row.run_id, []).append(row)
    return {run_id: _whole(tx, run_id, rows) for run_id, rows in found.items()}


def spec_of(row: Any) -> dict[str, Any]:
    return msgspec.json.decode(row.spec, type=_Spec).spec


class _Spec(msgspec.Struct):
    spec: dict[str, Any]


def _whole(tx: Transaction, run_id: int, rows: list[Any]) -> Sequence[Any]:
    if len(rows) == 1:
        return rows
    whole = whole_attempts(tx, run_id)
    return [row for row in rows if row.attempt in whole]
