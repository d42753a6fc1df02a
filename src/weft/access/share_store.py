"""The SQL of guests' links."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import insert, select, update

from weft.access.share import Share
from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction

shares = schema.shares
SHOWN = tuple(shares.c[name] for name in Share.__dataclass_fields__)


def add(tx: Transaction, row: Mapping[str, Any]) -> int:
    """Keep a link; of its token only the digest."""
    key: Any = tx.execute(insert(shares).values(**row)).inserted_primary_key
    return int(key[0])


def get(tx: Transaction, share_id: int) -> Share | None:
    return _share(tx.execute(select(*SHOWN).where(shares.c.id == share_id)).first())


def by_digest(tx: Transaction, digest: str) -> Share | None:
    """The link whose token has this digest, whether it counts or not."""
    return _share(tx.execute(select(*SHOWN).where(shares.c.digest == digest)).first())


def page(tx: Transaction, projects: Collection[str] | None, below: int | None, limit: int) -> list[Share]:
    """Links of these projects, newest first."""
    query = select(*SHOWN).order_by(shares.c.id.desc()).limit(limit)
    if projects is not None:
        query = query.where(shares.c.project.in_(sorted(projects)))
    if below is not None:
        query = query.where(shares.c.id < below)
    return [Share(**row._mapping) for row in tx.rows(query)]


def count_valid(tx: Transaction, project: str, at: Moment) -> int:
    """How many links of a project count."""
    lasts = shares.c.expires_at.is_(None) | (shares.c.expires_at > at)
    query = select(shares.c.id).where(shares.c.project == project, shares.c.revoked_at.is_(None), lasts)
    return len(tx.rows(query))


def revoke(tx: Transaction, share_id: int, at: Moment) -> None:
    tx.execute(update(shares).where(shares.c.id == share_id, shares.c.revoked_at.is_(None)).values(revoked_at=at))


def note_used(tx: Transaction, used: Mapping[int, Moment]) -> None:
    for share_id, at in sorted(used.items()):
        tx.execute(update(shares).where(shares.c.id == share_id).values(used_at=at))


def _share(row: Any) -> Share | None:
    return None if row is None else Share(**row._mapping)
