"""Queries of the curves of runs: how far an attempt was at some moments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import and_, delete, func, select

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import Row, insert_many
from weft.db.database import Transaction
from weft.items.collect_store import Place
from weft.items.model import Curve, Sample

samples, run_stats, items = schema.samples, schema.run_stats, schema.items

REQUESTS, ERRORS, MEMORY = "downloader/request_count", "log_count/ERROR", "weft/memory_bytes"
LARGEST = 2**53
"""No count is larger; a spider may put anything into its statistics."""


def taken(tx: Transaction, places: Collection[Place]) -> dict[Place, tuple[int, Moment, Moment]]:
    """For each attempt with samples how many they are, and when the first and the last were taken."""
    columns = (samples.c.run_id, samples.c.attempt, func.count(), func.min(samples.c.at), func.max(samples.c.at))
    query = select(*columns).where(samples.c.run_id.in_({run_id for run_id, _ in places}))
    rows = tx.rows(query.group_by(samples.c.run_id, samples.c.attempt))
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}


def add(tx: Transaction, rows: Sequence[Row]) -> None:
    insert_many(tx, samples, rows)


def thin(tx: Transaction, place: Place) -> None:
    """Remove every second sample of an attempt, but not the first."""
    mine = _of(place)
    moments = [row.at for row in tx.rows(select(samples.c.at).where(mine).order_by(samples.c.at))]
    tx.execute(delete(samples).where(mine, samples.c.at.in_(moments[1::2])))


def curve(tx: Transaction, place: Place) -> Curve | None:
    """An attempt's samples and how far it is now; None where it has told nothing yet."""
    same = and_(run_stats.c.run_id == place[0], run_stats.c.attempt == place[1])
    now = tx.execute(select(run_stats.c["items"], run_stats.c.stats, run_stats.c.at).where(same)).first()
    if now is None:
        return None
    rows = tx.rows(select(samples).where(_of(place)).order_by(samples.c.at))
    found = [Sample(row.at, row._mapping["items"], row.requests, row.errors, row.memory) for row in rows]
    newest = sample_of(msgspec.json.decode(now.stats), now._mapping["items"], now.at)
    if not found or newest.at > found[-1].at:
        found.append(newest)
    first = select(items.c.at).where(items.c.run_id == place[0], items.c.attempt == place[1])
    return Curve(place[1], tx.value(first.order_by(items.c.seq).limit(1)), found)


def sample_of(stats: dict[str, Any], count: int, at: Moment) -> Sample:
    """What Scrapy's statistics say of a moment."""
    return Sample(at, count, *(_number(stats.get(name)) for name in (REQUESTS, ERRORS, MEMORY)))


def _of(place: Place) -> Any:
    return and_(samples.c.run_id == place[0], samples.c.attempt == place[1])


def _number(value: object) -> int:
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return int(value) if is_one else 0  # type: ignore[call-overload]
