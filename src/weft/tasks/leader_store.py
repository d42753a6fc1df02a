"""The SQL of leadership: a row a role, with a term that grows at each change of hands."""

from __future__ import annotations

from sqlalchemy import select, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction

leaders, sequences = schema.leaders, schema.sequences

CLOCK = "clock"
"""The row of ``sequences`` with what the clock has shown."""

__all__ = [
    "Transaction",
    "create_role",
    "current_leader",
    "note_time",
    "noted_time",
    "renew",
    "resign_role",
    "take_over",
]


def current_leader(tx: Transaction, role: str) -> tuple[str, int, int] | None:
    """Holder, term and beats."""
    row = tx.execute(select(leaders).where(leaders.c.role == role)).first()
    return None if row is None else (row.holder, row.term, row.beats)


def create_role(tx: Transaction, role: str, holder: str) -> bool:
    insert_missing(tx, leaders, {"role": role, "holder": holder, "term": 1, "beats": 0})
    return (current_leader(tx, role) or ("",))[0] == holder


def renew(tx: Transaction, role: str, holder: str, term: int) -> bool:
    mine = (leaders.c.role == role, leaders.c.holder == holder, leaders.c.term == term)
    return tx.execute(update(leaders).where(*mine).values(beats=leaders.c.beats + 1)).rowcount == 1


def take_over(tx: Transaction, role: str, holder: str, seen: tuple[str, int, int]) -> bool:
    same = (leaders.c.role == role, leaders.c.holder == seen[0], leaders.c.term == seen[1], leaders.c.beats == seen[2])
    return tx.execute(update(leaders).where(*same).values(holder=holder, term=seen[1] + 1, beats=0)).rowcount == 1


def resign_role(tx: Transaction, role: str, holder: str) -> None:
    tx.execute(update(leaders).where(leaders.c.role == role, leaders.c.holder == holder).values(holder=""))


def noted_time(tx: Transaction, *, lock: bool = False) -> Moment | None:
    """What the clock of a leader has shown not long ago; with ``lock`` nobody else changes it meanwhile."""
    query = select(sequences.c.last).where(sequences.c.name == CLOCK)
    found = tx.value(query.with_for_update() if lock else query)
    return None if found is None else int(found)


def note_time(tx: Transaction, at: Moment) -> None:
    insert_missing(tx, sequences, {"name": CLOCK, "last": at})
    tx.execute(update(sequences).where(sequences.c.name == CLOCK).values(last=at))
