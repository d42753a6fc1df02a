"""The SQL of workers: who they are, their heartbeats and states, and why runs wait for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Update, bindparam, func, insert, literal_column, select, update

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.runs.model import UNLEASED

workers, runs = schema.workers, schema.runs

GONE = "offline"
DRAINING = "draining"


def add(tx: Transaction, row: Mapping[str, Any]) -> int:
    """Enter a worker under a new id: one that restarts is a new worker, so its old leases stay its predecessor's."""
    key = tx.execute(insert(workers).values(row)).inserted_primary_key
    if key is None:
        raise AssertionError("an inserted worker has an id")
    return int(key[0])


def joined(tx: Transaction, request_id: str) -> tuple[int, int | None] | None:
    """The worker that this request has entered before, and the key that it was made with."""
    row = tx.execute(select(workers.c.id, workers.c.key_id).where(workers.c.request_id == request_id)).first()
    return None if row is None else (row.id, row.key_id)


def entered(tx: Transaction, worker_id: int) -> Any:
    """The row of a worker, or None."""
    return tx.execute(select(workers).where(workers.c.id == worker_id)).first()


def beat(tx: Transaction, worker_id: int, values: Mapping[str, Any]) -> str | None:
    """Count one beat; the state that the worker is known in then, None where it was declared lost.

    A worker that was asked to drain is known as draining until it leaves, whatever it says itself.
    """
    told = {"of": worker_id} | {f"new_{name}": value for name, value in values.items()}
    if tx.execute(_beat(drains=False), told).rowcount == 1:
        return str(values["state"])
    state = GONE if values["state"] == GONE else DRAINING
    return state if tx.execute(_beat(drains=True), told | {"new_state": state}).rowcount == 1 else None


@cache
def _beat(*, drains: bool) -> Update:
    new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in ("seen_at", "state", "running", "done", "stats")}
    gone: Any = literal_column(f"'{GONE}'")
    draining: Any = literal_column(f"'{DRAINING}'")
    known = workers.c.state == draining if drains else workers.c.state.not_in((gone, draining))
    return update(workers).where(workers.c.id == bindparam("of"), known).values(beats=workers.c.beats + 1, **new)


def drain(tx: Transaction, worker_id: int) -> bool:
    """Ask a worker to leave once its runs have ended; False where it has left already."""
    here = (workers.c.id == worker_id) & (workers.c.state != GONE)
    if tx.value(select(workers.c.id).where(here)) is None:
        return False
    tx.execute(update(workers).where(here).values(state=DRAINING))
    return True


def beats(tx: Transaction) -> dict[int, int]:
    """The beat count of every worker that is not offline."""
    rows = tx.rows(select(workers.c.id, workers.c.beats).where(workers.c.state != GONE))
    return {row.id: row.beats for row in rows}


def declare_offline(tx: Transaction, worker_id: int, at_beat: int | None = None) -> str | None:
    """Mark a worker offline, if it is still at ``at_beat``; return its name."""
    condition = [workers.c.id == worker_id, workers.c.state != GONE]
    if at_beat is not None:
        condition.append(workers.c.beats == at_beat)
    if tx.execute(update(workers).where(*condition).values(state=GONE, running=0)).rowcount != 1:
        return None
    return str(tx.value(select(workers.c.name).where(workers.c.id == worker_id)))


def offline_with_leases(tx: Transaction) -> list[tuple[int, str]]:
    """Workers that are offline and still hold runs."""
    leased = select(runs.c.lease_worker).where(runs.c.lease_worker.is_not(None))
    query = select(workers.c.id, workers.c.name).where(workers.c.id.in_(leased), workers.c.state == GONE)
    return [(row.id, row.name) for row in tx.rows(query)]


RUN = tuple(
    runs.c[name]
    for name in ("id", "project", "task", "kind", "state", "attempt", "started_at", "finished_at", "outcome", "reason")
)


def current_runs(tx: Transaction, worker_id: int, limit: int) -> list[Any]:
    """What the worker holds, newest first."""
    return list(tx.rows(select(*RUN).where(runs.c.lease_worker == worker_id).order_by(runs.c.id.desc()).limit(limit)))


def recent_runs(tx: Transaction, name: str, within: int, limit: int) -> list[Any]:
    """Those of the newest ``within`` runs that a worker of this name had last and that have ended, newest first."""
    newest = tx.value(select(func.max(runs.c.id))) or 0
    ended = (runs.c.id > newest - within) & (runs.c.worker == name) & runs.c.finished_at.is_not(None)
    return list(tx.rows(select(*RUN).where(ended).order_by(runs.c.id.desc()).limit(limit)))


def all_workers(tx: Transaction, *, offline_since: Moment) -> list[Any]:
    """Every worker that is there, and those that went offline after ``offline_since``."""
    shown = (workers.c.state != GONE) | (workers.c.seen_at > offline_since)
    return list(tx.rows(select(workers).where(shown).order_by(workers.c.name, workers.c.id)))


def forget(tx: Transaction, offline_since: Moment) -> int:
    """Delete workers that have been offline since before ``offline_since``."""
    old = (workers.c.state == GONE) & (workers.c.seen_at < offline_since)
    return tx.execute(workers.delete().where(old)).rowcount


limits = schema.limits


def waiting_runs(tx: Transaction, run_ids: Collection[int]) -> Sequence[Any]:
    """What of each run says why it waits; those that do not are left out."""
    columns = (runs.c.id, runs.c.task, runs.c.state, runs.c.ready_lane, runs.c.not_before, runs.c.attempt)
    return tx.rows(select(*columns).where(runs.c.id.in_(run_ids), runs.c.state.in_(UNLEASED)))


def slots_of_limits(tx: Transaction, keys: Collection[str]) -> dict[str, tuple[int, int]]:
    """How many runs each of these limits allows, and how many take a place under it."""
    rows = tx.rows(select(limits.c.key, limits.c.max_running, limits.c.in_use).where(limits.c.key.in_(keys)))
    return {row.key: (row.max_running, row.in_use) for row in rows}
