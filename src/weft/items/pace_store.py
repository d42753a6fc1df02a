"""The SQL of how far runs are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, select

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction

run_stats, samples_, runs = schema.run_stats, schema.samples, schema.runs


def attempts(tx: Transaction, run_ids: Sequence[int]) -> dict[int, dict[int, tuple[int, bool]]]:
    """For each run its attempts with the items that each has yielded, and whether the run is running."""
    found: dict[int, dict[int, tuple[int, bool]]] = {}
    for run_id, attempt, items, worker in tx.rows(_attempts(), {"ids": list(run_ids)}) if run_ids else ():
        found.setdefault(run_id, {})[attempt] = (items, worker is not None)
    return found


@cache
def _attempts() -> Select[Any]:
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c["items"], runs.c.lease_worker)
    query = select(*columns).join_from(run_stats, runs, runs.c.id == run_stats.c.run_id)
    return query.where(run_stats.c.run_id.in_(bindparam("ids", expanding=True)))


def samples(tx: Transaction, run_id: int, attempt: int, limit: int) -> list[tuple[Moment, int]]:
    """The newest samples of an attempt, in their order: when, and how many items there were."""
    rows = tx.rows(_samples(), {"run": run_id, "attempt": attempt, "limit": limit})
    return [(at, items) for at, items in reversed(rows)]


@cache
def _samples() -> Select[Any]:
    mine = (samples_.c.run_id == bindparam("run"), samples_.c.attempt == bindparam("attempt"))
    newest = select(samples_.c.at, samples_.c["items"]).where(*mine).order_by(samples_.c.at.desc())
    return newest.limit(bindparam("limit"))
