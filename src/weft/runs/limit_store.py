"""The SQL of limits: how many runs of a task, a tag or a project may run at once, and how many do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, bindparam, delete, insert, select, update

from weft.db import schema
from weft.db.database import Transaction

runs, limits = schema.runs, schema.limits


def free_places(tx: Transaction, keys: Collection[str]) -> dict[str, int]:
    """How many more runs each limit allows; the limits stay locked until the transaction ends."""
    return {row.key: row.max_running - row.in_use for row in tx.rows(_locked_limits(), {"keys": list(keys)})}


@cache
def _locked_limits() -> Select[Any]:
    named = limits.c.key.in_(bindparam("keys", expanding=True))
    return select(limits).where(named).order_by(limits.c.key).with_for_update()


def take_places(tx: Transaction, taken: Mapping[str, int]) -> None:
    """Count runs in (positive) or out (negative) of their limits."""
    for key in sorted(taken):
        if taken[key]:
            tx.execute(update(limits).where(limits.c.key == key).values(in_use=limits.c.in_use + taken[key]))


def limit(tx: Transaction, key: str) -> int | None:
    """How many runs that this key counts may run at once."""
    found = tx.value(select(limits.c.max_running).where(limits.c.key == key))
    return None if found is None else int(found)


def set_limit(tx: Transaction, key: str, max_running: int | None) -> None:
    """Let at most ``max_running`` runs that this key counts run at once; None removes the limit."""
    if max_running is None:
        tx.execute(delete(limits).where(limits.c.key == key))
        return
    changed = tx.execute(update(limits).where(limits.c.key == key).values(max_running=max_running)).rowcount
    if not changed and tx.value(select(limits.c.key).where(limits.c.key == key)) is None:
        tx.execute(insert(limits).values(key=key, max_running=max_running, in_use=_count_running(tx, key)))


def _count_running(tx: Transaction, key: str) -> int:
    """Let the runs that run already take places under ``key``, and give them back at their ends; return how many."""
    lanes = schema.lanes
    query = select(runs.c.id, runs.c.slots, lanes.c.limits).join(lanes, lanes.c.id == runs.c.lane_id)
    counted: dict[str, list[int]] = {}
    for row in tx.rows(query.where(runs.c.lease_worker.is_not(None)).with_for_update()):
        held = set(row.slots.split(",") if row.slots else ())
        if key in held or key in msgspec.json.decode(row.limits):
            counted.setdefault(",".join(sorted(held | {key})), []).append(row.id)
    for slots, ids in counted.items():
        tx.execute(update(runs).where(runs.c.id.in_(ids)).values(slots=slots))
    return sum(map(len, counted.values()))
