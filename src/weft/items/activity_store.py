"""The SQL of activity: the events that tell of it, and how many items runs have yielded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, case, func, select, text

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction

events, run_stats, runs = schema.events, schema.run_stats, schema.runs

AT_ONCE = 500
MOST_RUNNING = 5_000


def told(tx: Transaction, kinds: Collection[str], low: int, below: int) -> Sequence[Any]:
    """The events of these kinds with ids from ``low`` on and below another, newest first."""
    return tx.rows(_told(), {"kinds": sorted(kinds), "low": low, "below": below})


@cache
def _told() -> Select[Any]:
    there = (_between(), events.c.kind.in_(bindparam("kinds", expanding=True)))
    return select(events).where(*there).order_by(events.c.id.desc())


def ended(tx: Transaction, step: Moment, low: int, below: int) -> Sequence[Any]:
    """How many runs those events tell to have ended, and how many items these have yielded: by project, by step of
    time, and by whether they succeeded or were cancelled."""
    return tx.rows(_ended(), {"step": step, "low": low, "below": below})


@cache
def _ended() -> Select[Any]:
    place = events.c.at // bindparam("step")
    good, cancelled = (events.c.data.contains(f'"state":"{state}"') for state in ("succeeded", "cancelled"))
    state = case((good, "succeeded"), (cancelled, "cancelled"), else_="failed")
    # Looked up for each: PostgreSQL would rather join all runs that there are.
    mine = run_stats.c.run_id == events.c.run_id
    items = select(run_stats.c["items"]).where(mine).order_by(run_stats.c.attempt.desc()).limit(1).scalar_subquery()
    named = (place.label("place"), state.label("stood"))
    query = select(events.c.project, *named, func.count(), func.sum(items))
    found = query.where(_between(), events.c.kind == "run_finished")
    return found.group_by(events.c.project, *(text(each.name) for each in named))


def _between() -> ColumnElement[bool]:
    return (events.c.id >= bindparam("low")) & (events.c.id < bindparam("below"))


def first_at(tx: Transaction, low: int) -> Moment | None:
    """When the first event from an id on was."""
    found: Moment | None = tx.value(select(events.c.at).where(events.c.id >= low).order_by(events.c.id).limit(1))
    return found


def running(tx: Transaction) -> dict[int, int]:
    """How many items each run that runs has yielded so far."""
    last = (run_stats.c.run_id == runs.c.id) & (run_stats.c.attempt == runs.c.attempt)
    query = select(runs.c.id, func.coalesce(run_stats.c["items"], 0)).select_from(runs).outerjoin(run_stats, last)
    return dict(tx.rows(query.where(runs.c.lease_worker.is_not(None)).limit(MOST_RUNNING)))


def items(tx: Transaction, run_ids: Sequence[int]) -> dict[int, int]:
    """How many items the last attempt of each run has yielded; those that yield none are left out."""
    found: dict[int, int] = {}
    for begin in range(0, len(run_ids), AT_ONCE):
        found |= dict(tx.rows(_items(), {"ids": run_ids[begin : begin + AT_ONCE]}))
    return found


@cache
def _items() -> Select[Any]:
    last = (runs.c.id == run_stats.c.run_id) & (runs.c.attempt == run_stats.c.attempt)
    query = select(run_stats.c.run_id, run_stats.c["items"]).join_from(run_stats, runs, last)
    return query.where(run_stats.c.run_id.in_(bindparam("ids", expanding=True)))
