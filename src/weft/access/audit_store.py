"""The SQL of the audit log. Rows are only ever added, and only here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, not_, or_, select, update

from weft.db import schema
from weft.db.bulk import insert_many, insert_missing
from weft.db.database import Transaction

audit, sequences = schema.audit, schema.sequences

LAST = "audit"
"""The row of ``sequences`` that has the number of the last entry: whoever holds it adds the next ones."""


REFUSED = '{"refused":true'
"""How the data of a refusal begins (``refusals.py``)."""


def take_numbers(tx: Transaction, count: int) -> int:
    """The first of ``count`` numbers without a gap; others that want to add wait until this transaction ends."""
    mine = update(sequences).where(sequences.c.name == LAST).values(last=sequences.c.last + count)
    if not tx.execute(mine).rowcount:
        insert_missing(tx, sequences, {"name": LAST, "last": 0})
        tx.execute(mine)
    return int(tx.value(select(sequences.c.last).where(sequences.c.name == LAST).with_for_update())) - count + 1


def digest_of(tx: Transaction, number: int) -> str | None:
    """The digest of one entry. Locked, so that it is read as it is now and not as it was when a snapshot was taken."""
    found = tx.value(select(audit.c.digest).where(audit.c.id == number).with_for_update())
    return None if found is None else str(found)


def add(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    insert_many(tx, audit, rows)


def after(tx: Transaction, number: int, limit: int) -> Sequence[Any]:
    """The entries that follow this one, in order."""
    return tx.rows(select(audit).where(audit.c.id > number).order_by(audit.c.id).limit(limit))


def find(tx: Transaction, *conditions: ColumnElement[bool], limit: int) -> Sequence[Any]:
    """Entries that meet the conditions, newest first."""
    return tx.rows(select(audit).where(*conditions).order_by(audit.c.id.desc()).limit(limit))


def is_refused(wanted: bool) -> ColumnElement[bool]:
    """Entries of calls that were refused, or all others. What was sent never stands at the beginning of the data."""
    refused = audit.c.data.startswith(REFUSED)
    return refused if wanted else or_(audit.c.data.is_(None), not_(refused))


def last_number(tx: Transaction) -> int:
    """The number of the last entry that was ever added."""
    return int(tx.value(select(sequences.c.last).where(sequences.c.name == LAST)) or 0)
