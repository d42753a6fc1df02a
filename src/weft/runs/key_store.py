"""The SQL of keys that make one run out of several submits: idempotency keys and dedup keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select, tuple_, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing
from weft.db.database import Transaction

keys, dedup, runs = schema.idempotency_keys, schema.dedup_keys, schema.runs

Key = tuple[str, str]


def known(tx: Transaction, wanted: Sequence[Key]) -> dict[Key, tuple[str, int]]:
    """Digest and run of each (project, key) that was used before."""
    if not wanted:
        return {}
    query = select(keys).where(tuple_(keys.c.project, keys.c.key).in_(wanted))
    return {(row.project, row.key): (row.digest, row.run_id) for row in tx.rows(query)}


def remember(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep which run each key made; a concurrent submit with one of them fails and is run again."""
    insert_many(tx, keys, rows)


def live_duplicate(tx: Transaction, project: str, key: str, since: Moment) -> int | None:
    """The run for this dedup key that has not ended, or ended after ``since``.

    Holds the key until the transaction ends, so that two submits of one target cannot both find nothing.
    """
    insert_missing(tx, dedup, {"project": project, "key": key, "run_id": 0, "at": 0})
    held = select(dedup.c.run_id).where(dedup.c.project == project, dedup.c.key == key).with_for_update()
    run_id = tx.value(held)
    row = tx.execute(select(runs.c.state, runs.c.finished_at).where(runs.c.id == run_id)).first() if run_id else None
    if row is None:
        return None
    return int(run_id) if row.finished_at is None or row.finished_at > since else None


def remember_target(tx: Transaction, project: str, key: str, run_id: int, at: Moment) -> None:
    held = (dedup.c.project == project, dedup.c.key == key)
    tx.execute(update(dedup).where(*held).values(run_id=run_id, at=at))
