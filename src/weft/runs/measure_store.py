"""The SQL of what is measured of ended runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, select

from weft.clock import Moment, seconds
from weft.db import schema
from weft.db.database import Transaction

runs, events = schema.runs, schema.events


def last_event(tx: Transaction) -> int:
    return int(tx.value(select(func.max(events.c.id))) or 0)


def ended(
    tx: Transaction, above: int, after: Moment, upto: Moment, dispatch: Sequence[float], lateness: Sequence[float]
) -> Sequence[Any]:
    """Runs whose end was told after one moment and not after another, by outcome.

    Each row has the outcome, the count, and for both histograms the count in each bucket and the sum of microseconds.
    Only events with an id ``above`` are looked at.
    """
    waited = runs.c.started_at - runs.c.queued_at
    late = runs.c.queued_at - runs.c.fire_at
    at_first = and_(runs.c.attempt == 1, runs.c.started_at.is_not(None))
    ticked = and_(runs.c.fire_at.is_not(None), runs.c.trigger == "schedule")
    columns = [*_buckets(waited, at_first, dispatch), *_buckets(late, ticked, lateness)]
    told = and_(events.c.id > above, events.c.at > after, events.c.at <= upto, events.c.kind == "run_finished")
    query = select(runs.c.outcome, func.count(), *columns).join(events, events.c.run_id == runs.c.id).where(told)
    return tx.rows(query.group_by(runs.c.outcome))


def reported(tx: Transaction, above: int, after: Moment, upto: Moment, limit: int) -> Sequence[Any]:
    """Project, task and result of each task's newest run whose end was told in that time and that may have numbers.

    The newest ``limit`` of them, oldest first.
    """
    told = and_(events.c.id > above, events.c.at > after, events.c.at <= upto, events.c.kind == "run_finished")
    last = func.max(events.c.id)
    found = select(last.label("id")).join(runs, runs.c.id == events.c.run_id)
    found = found.where(told, runs.c.result.like('%"metrics":%')).group_by(runs.c.project, runs.c.task)
    newest = found.order_by(last.desc()).limit(limit).subquery()
    query = select(runs.c.project, runs.c.task, runs.c.result).join(events, events.c.run_id == runs.c.id)
    return tx.rows(query.join(newest, newest.c.id == events.c.id).order_by(events.c.id))


def _buckets(value: ColumnElement[Any], counts: ColumnElement[bool], bounds: Sequence[float]) -> list[Any]:
    """How many values are in each bucket and beyond the last, and their sum."""
    edges = [None, *map(seconds, bounds), None]
    found: list[Any] = []
    for low, high in pairwise(edges):
        within = [counts, *([] if low is None else [value > low]), *([] if high is None else [value <= high])]
        found.append(func.sum(case((and_(*within), 1), else_=0)))
    return [*found, func.sum(case((counts, value), else_=0))]
