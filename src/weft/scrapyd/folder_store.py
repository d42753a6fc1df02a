"""The SQL of Scrapyd's folders: which projects and spiders have runs, and the newest runs of one spider.

A run's spider is in its spec. So the tasks of a project are walked along the index, one step each, and the newest runs
of each tell its spiders: that costs the same however many runs there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select

from weft.db import schema
from weft.db.database import Transaction

runs, attempts, chunks, names = schema.runs, schema.attempts, schema.log_chunks, schema.scrapyd_jobs

MOST_STEPS = 2_000
"""How many projects, or tasks of one, are walked along."""
LOOKED_AT = 100
"""How many of the newest runs of a project, or of a task, are looked at for those that a spider has begun."""
BEGUN = and_(runs.c.kind == "spider", runs.c.started_at.is_not(None))


def projects(tx: Transaction) -> Iterator[str]:
    """Every project that has runs."""
    return _steps(tx, runs.c.project)


def tasks(tx: Transaction, project: str) -> Iterator[str]:
    """Every task of a project that has runs."""
    return _steps(tx, runs.c.task, runs.c.project == project)


def newest(tx: Transaction, project: str, task: str | None = None, *, limit: int = 1) -> Sequence[Any]:
    """Spec and end of those that a spider has begun among the newest runs of a project, or of one of its tasks."""
    mine = and_(runs.c.project == project, *([] if task is None else [runs.c.task == task]))
    few = select(runs.c.id).where(mine).order_by(runs.c.id.desc()).limit(LOOKED_AT).subquery()
    edge = select(func.min(few.c.id)).scalar_subquery()
    query = select(runs.c.spec, runs.c.finished_at).where(mine, runs.c.id >= edge, BEGUN)
    return tx.rows(query.order_by(runs.c.id.desc()).limit(limit))


def of_task(tx: Transaction, project: str, task: str, limit: int) -> Sequence[Any]:
    """The newest runs of a task that have begun, under the names that Scrapyd's clients know."""
    shown = (runs.c.id, runs.c.attempt, runs.c.spec, runs.c.finished_at, runs.c.log_bytes, names.c.job)
    query = select(*shown).select_from(runs).outerjoin(names, names.c.run_id == runs.c.id)
    mine = and_(runs.c.project == project, runs.c.task == task, BEGUN)
    return tx.rows(query.where(mine).order_by(runs.c.id.desc()).limit(limit))


def earlier_bytes(tx: Transaction, run_ids: Sequence[int]) -> dict[int, int]:
    """How long the logs of attempts are that were followed by another, by run."""
    query = select(attempts.c.run_id, func.sum(attempts.c.log_bytes)).where(attempts.c.run_id.in_(run_ids))
    return _sums(tx, query.group_by(attempts.c.run_id), run_ids)


def live_bytes(tx: Transaction, run_ids: Sequence[int]) -> dict[int, int]:
    """How much is known of the logs of attempts that run, by run."""
    query = select(chunks.c.run_id, func.sum(func.length(chunks.c.data))).where(chunks.c.run_id.in_(run_ids))
    return _sums(tx, query.group_by(chunks.c.run_id), run_ids)


def _sums(tx: Transaction, query: Any, run_ids: Sequence[int]) -> dict[int, int]:
    return {row[0]: int(row[1] or 0) for row in tx.rows(query)} if run_ids else {}


def _steps(tx: Transaction, column: ColumnElement[str], *within: ColumnElement[bool]) -> Iterator[str]:
    """Each value of a column once, in order, by a step of the index."""
    last = ""
    for _ in range(MOST_STEPS):
        found: str | None = tx.value(select(func.min(column)).where(*within, column > last))
        if found is None:
            return
        yield found
        last = found
