"""The SQL of how tasks went lately, and of what comes after what as a whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ScalarSelect, func, literal, or_, select, tuple_

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.tasks import store
from weft.tasks.store import Stored, parts

tasks, runs, ticks, dependencies = schema.tasks, schema.runs, schema.ticks, schema.dependencies

MOST_EDGES = 2000
MOST_TICKS = 5000
LARGEST_ID = 2**63 - 1

SHOWN = tuple(runs.c[name] for name in ("id", "state", "outcome", "reason", "queued_at", "started_at", "finished_at"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Tasks that come after others, or before."""

    tasks: Sequence[Stored]
    edges: Sequence[tuple[int, int, str]]
    """The id of the forerunner, that of the task, and how the first must end."""
    newest: dict[int, Any]
    """The newest run of each task that has one."""
    is_whole: bool
    """False where there are more edges than are told."""


def newest_runs(tx: Transaction, task_ids: Collection[int]) -> dict[int, Any]:
    """How the newest run of each task stands, by the id of the task."""
    found: dict[int, Any] = {}
    newest = _newest_id(tx.connection.dialect.name)
    for part in parts(task_ids):
        of_tasks = select(tasks.c.id.label("of"), newest.label("run_id")).where(tasks.c.id.in_(part)).subquery()
        query = select(of_tasks.c.of, *SHOWN).join(of_tasks, runs.c.id == of_tasks.c.run_id)
        found |= {row.of: row for row in tx.rows(query)}
    return found


def _newest_id(dialect: str) -> ScalarSelect[int]:
    """The newest run of a task, with a task.

    PostgreSQL would rather walk back through all runs until it meets one of the task, which may be never; where whole
    rows are compared, it takes the index that has them in this order.
    """
    if dialect != "postgresql":
        of_task = (runs.c.project == tasks.c.project, runs.c.task == tasks.c.name)
        return select(func.max(runs.c.id)).where(*of_task).scalar_subquery()
    row = tuple_(runs.c.project, runs.c.task, runs.c.id)
    first, last = (tuple_(tasks.c.project, tasks.c.name, literal(each, BigInteger)) for each in (0, LARGEST_ID))
    order = (runs.c.project.desc(), runs.c.task.desc(), runs.c.id.desc())
    return select(runs.c.id).where(row >= first, row <= last).order_by(*order).limit(1).scalar_subquery()


def graph(tx: Transaction, projects: Collection[str] | None, around: int | None = None) -> Graph:
    """What comes after what, of projects or of all, or ``around`` one task; edges of which one end may not be seen are
    left out."""
    one, other = dependencies.c.upstream_id, dependencies.c.task_id
    query = select(one, other, dependencies.c.on)
    if around is not None:
        query = query.where(or_(one == around, other == around))
    elif projects is not None:
        query = query.join(tasks, tasks.c.id == other).where(tasks.c.project.in_(projects))
    rows = tx.rows(query.order_by(other, one).limit(MOST_EDGES + 1))
    ids = {each for row in rows[:MOST_EDGES] for each in (row.upstream_id, row.task_id)}
    found = {
        task_id: stored
        for task_id, stored in store.by_ids(tx, ids).items()
        if projects is None or stored.task.project in projects
    }
    edges = [(row.upstream_id, row.task_id, row.on) for row in rows[:MOST_EDGES]]
    return Graph(
        tasks=sorted(found.values(), key=lambda stored: (stored.task.project, stored.task.name)),
        edges=[edge for edge in edges if edge[0] in found and edge[1] in found],
        newest=newest_runs(tx, list(found)),
        is_whole=len(rows) <= MOST_EDGES,
    )


def ticks_between(tx: Transaction, task_ids: Collection[int], start: Moment, end: Moment) -> dict[int, list[Any]]:
    """What came of the ticks of tasks from ``start`` up to ``end``, and how the runs stand that came of them."""
    found: dict[int, list[Any]] = {task_id: [] for task_id in task_ids}
    columns = (ticks.c.task_id, ticks.c.fire_at, ticks.c.outcome, ticks.c.run_id, runs.c.state)
    for part in parts(task_ids):
        query = select(*columns).outerjoin(runs, runs.c.id == ticks.c.run_id)
        query = query.where(ticks.c.task_id.in_(part), ticks.c.fire_at >= start, ticks.c.fire_at < end)
        for row in tx.rows(query.limit(MOST_TICKS)):
            found[row.task_id].append(row)
    return found
