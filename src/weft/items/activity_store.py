"""The SQL of activity: the events that tell of it, and how many items runs have yielded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, select

from weft.db import schema
from weft.db.database import Transaction

events, run_stats, runs = schema.events, schema.run_stats, schema.runs

AT_ONCE = 500


def told(tx: Transaction, kinds: Collection[str], low: int, below: int) -> Sequence[Any]:
    """The events of these kinds with ids from ``low`` on and below another, newest first."""
    return tx.rows(_told(), {"kinds": sorted(kinds), "low": low, "below": below})


@cache
def _told() -> Select[Any]:
    there = (events.c.id >= bindparam("low"), events.c.id < bindparam("below"))
    return (
        select(events).where(*there, events.c.kind.in_(bindparam("kinds", expanding=True))).order_by(events.c.id.desc())
    )


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
