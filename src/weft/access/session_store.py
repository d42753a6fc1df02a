"""The SQL of sessions and of logins that failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import delete, insert, or_, select, update

from weft.access import store
from weft.access.model import Session, User
from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction

sessions, failures = schema.sessions, schema.login_failures

HANDLE = 16
"""Characters of the digest that name a session."""


def add(tx: Transaction, row: Mapping[str, Any]) -> None:
    tx.execute(insert(sessions).values(row))


def find(tx: Transaction, digest: str) -> Session | None:
    row = tx.execute(select(sessions).where(sessions.c.digest == digest)).first()
    user = None if row is None else store.user(tx, row.user_id)
    return None if row is None or user is None else _session(row, user)


def of_user(tx: Transaction, user_id: int) -> list[Session]:
    """The sessions of a user, the one that was used last first."""
    user = store.user(tx, user_id)
    rows = tx.rows(select(sessions).where(sessions.c.user_id == user_id).order_by(sessions.c.seen_at.desc()))
    return [] if user is None else [_session(row, user) for row in rows]


def _session(row: Any, user: User) -> Session:
    shown = {name: getattr(row, name) for name in ("csrf", "created_at", "seen_at", "address", "agent")}
    return Session(user=user, handle=handle(row.digest), **shown)


def handle(digest: str) -> str:
    return digest[:HANDLE]


def touch(tx: Transaction, digest: str, at: Moment) -> None:
    tx.execute(update(sessions).where(sessions.c.digest == digest).values(seen_at=at))


def end(tx: Transaction, digest: str) -> None:
    tx.execute(delete(sessions).where(sessions.c.digest == digest))


def end_one(tx: Transaction, user_id: int, named: str) -> bool:
    """End the session of a user that has this handle; False where there is none."""
    digests = [row.digest for row in tx.rows(select(sessions.c.digest).where(sessions.c.user_id == user_id))]
    found = [digest for digest in digests if handle(digest) == named]
    for digest in found:
        end(tx, digest)
    return bool(found)


def end_all(tx: Transaction, user_id: int) -> int:
    return tx.execute(delete(sessions).where(sessions.c.user_id == user_id)).rowcount


def forget(tx: Transaction, *, seen_before: Moment, created_before: Moment) -> int:
    old = or_(sessions.c.seen_at < seen_before, sessions.c.created_at < created_before)
    return tx.execute(delete(sessions).where(old)).rowcount


def failures_of(tx: Transaction, subjects: Collection[str]) -> dict[str, Any]:
    """What is known of each, locked until the transaction ends, so that attempts are counted one after another."""
    query = select(failures).where(failures.c.subject.in_(subjects)).order_by(failures.c.subject).with_for_update()
    return {row.subject: row for row in tx.rows(query)}


def note_failures(tx: Transaction, subject: str, values: Mapping[str, Any], *, known: bool) -> None:
    if known:
        tx.execute(update(failures).where(failures.c.subject == subject).values(values))
    else:
        tx.execute(insert(failures).values({"subject": subject, **values}))


def forgive(tx: Transaction, subject: str) -> None:
    tx.execute(delete(failures).where(failures.c.subject == subject))


def take_back(tx: Transaction, subject: str, at: Moment) -> None:
    """Undo the counting of one attempt that turned out well."""
    counted = (failures.c.subject == subject) & (failures.c.failures > 0)
    tx.execute(update(failures).where(counted).values(failures=failures.c.failures - 1, blocked_until=at))


def forget_failures(tx: Transaction, before: Moment) -> int:
    return tx.execute(delete(failures).where(failures.c.at < before)).rowcount
