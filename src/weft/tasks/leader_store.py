"""The SQL of leadership: a row a role, with a term that grows at each change of hands."""

from __future__ import annotations

from sqlalchemy import select, update

from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction

leaders = schema.leaders

__all__ = ["Transaction", "beat", "current", "found", "resign", "take_over"]


def current(tx: Transaction, role: str) -> tuple[str, int, int] | None:
    """Holder, term and beats."""
    row = tx.execute(select(leaders).where(leaders.c.role == role)).first()
    return None if row is None else (row.holder, row.term, row.beats)


def found(tx: Transaction, role: str, holder: str) -> bool:
    insert_missing(tx, leaders, {"role": role, "holder": holder, "term": 1, "beats": 0})
    return (current(tx, role) or ("",))[0] == holder


def beat(tx: Transaction, role: str, holder: str, term: int) -> bool:
    mine = (leaders.c.role == role, leaders.c.holder == holder, leaders.c.term == term)
    return tx.execute(update(leaders).where(*mine).values(beats=leaders.c.beats + 1)).rowcount == 1


def take_over(tx: Transaction, role: str, holder: str, seen: tuple[str, int, int]) -> bool:
    same = (leaders.c.role == role, leaders.c.holder == seen[0], leaders.c.term == seen[1], leaders.c.beats == seen[2])
    return tx.execute(update(leaders).where(*same).values(holder=holder, term=seen[1] + 1, beats=0)).rowcount == 1


def resign(tx: Transaction, role: str, holder: str) -> None:
    tx.execute(update(leaders).where(leaders.c.role == role, leaders.c.holder == holder).values(holder=""))
