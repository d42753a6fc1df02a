"""Compares what spiders have noted with what the store has, item by item."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select

from experiments.crawling import Try
from weft.db import schema
from weft.db.database import Transaction

Stored = dict[Try, list[tuple[int, Any]]]
"""Of each attempt, the number and the content of every item that is stored."""


@dataclass(slots=True, kw_only=True)
class Stock:
    """What became of the items."""

    noted: int = 0
    """Noted by their spider when they were on disk."""
    stored: int = 0
    lost: int = 0
    """Noted, and not stored."""
    doubled: int = 0
    """Stored more than once."""
    corrupt: int = 0
    """Stored otherwise than they were yielded, or under the number of another."""
    miscounted: list[str] = field(default_factory=list)
    """Where what is shown is not what is stored."""

    def add(self, other: Stock) -> None:
        for name in ("noted", "stored", "lost", "doubled", "corrupt"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def take_stock(noted: Mapping[Try, Sequence[int]], stored: Stored) -> Stock:
    """Count what was noted and what is stored; what was killed before it could note its last item may have one more."""
    stock = Stock()
    for place in noted.keys() | stored.keys():
        numbers, rows = noted.get(place, ()), stored.get(place, [])
        found = Counter(data.get("number") for _, data in rows)
        stock.noted += len(numbers)
        stock.stored += len(rows)
        stock.lost += len(set(numbers) - found.keys())
        stock.doubled += found.total() - len(found)
        stock.corrupt += sum(not is_whole(data) for _, data in rows)
        if found.total() == len(found):
            stock.corrupt += sum(seq != data.get("number") for seq, data in rows)
    return stock


def is_whole(data: Any) -> bool:
    text = f"{data.get('number')} {data.get('text')}"
    return bool(hashlib.sha256(text.encode()).hexdigest() == data.get("checksum"))


def stored_of(tx: Transaction, run_ids: Sequence[int]) -> Stored:
    """Every item of these runs."""
    items, revisions = schema.items, schema.revisions
    its_revision = (revisions.c.record_id == items.c.record_id) & (revisions.c.number == items.c.revision)
    query = select(items.c.run_id, items.c.attempt, items.c.seq, revisions.c.data).outerjoin(revisions, its_revision)
    found: Stored = defaultdict(list)
    for row in tx.rows(query.where(items.c.run_id.in_(run_ids))):
        found[row.run_id, row.attempt].append((row.seq, json.loads(row.data or "{}")))
    return found


def miscounted(tx: Transaction) -> list[str]:
    """A sentence for each count that is shown and is not that of the rows."""
    items, shown, records = schema.items, schema.run_stats, schema.records
    counted = select(items.c.run_id, items.c.attempt, func.count().label("items"))
    rows = {(row.run_id, row.attempt): row.items for row in tx.rows(counted.group_by(items.c.run_id, items.c.attempt))}
    told = {(row.run_id, row.attempt): row.items for row in tx.rows(select(shown)) if row.items}
    wrong = [f"{place} has {rows.get(place, 0)} items and shows {told.get(place, 0)}" for place in rows | told
             if rows.get(place) != told.get(place)]  # fmt: skip
    seen = int(tx.value(select(func.coalesce(func.sum(records.c.seen), 0))))
    if seen != sum(rows.values()):
        wrong.append(f"records were seen {seen} times in {sum(rows.values())} items")
    return wrong
