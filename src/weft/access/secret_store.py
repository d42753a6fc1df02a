"""The SQL of secrets, and of everything else that is sealed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Table, delete, select, tuple_, update

from weft.access.sealing import Sealed
from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction

secrets = schema.secrets

SEALED: tuple[Table, ...] = (schema.secrets, schema.webhooks)
"""Every table with the columns ``key_id``, ``sealed_key`` and ``sealed``."""


def put(tx: Transaction, project: str, name: str, values: Mapping[str, Any]) -> None:
    """Set a secret, whether there is one of this name or not."""
    key = {"project": project, "name": name}
    insert_missing(tx, secrets, key | dict(values))
    tx.execute(update(secrets).where(secrets.c.project == project, secrets.c.name == name).values(dict(values)))


def listed(tx: Transaction, project: str) -> list[tuple[str, Moment, str]]:
    """Name, time and person of the last change of each, by name."""
    query = select(secrets.c.name, secrets.c.updated_at, secrets.c.updated_by)
    return [tuple(row) for row in tx.rows(query.where(secrets.c.project == project).order_by(secrets.c.name))]


def remove(tx: Transaction, project: str, name: str) -> bool:
    gone = delete(secrets).where(secrets.c.project == project, secrets.c.name == name)
    return tx.execute(gone).rowcount == 1


def sealed(tx: Transaction, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], Sealed]:
    """Those of the wanted secrets that there are, by project and name."""
    which = tuple_(secrets.c.project, secrets.c.name).in_(list(wanted))
    rows = tx.rows(select(secrets).where(which)) if wanted else ()
    return {(row.project, row.name): Sealed(row.key_id, bytes(row.sealed_key), bytes(row.sealed)) for row in rows}


def sealed_otherwise(tx: Transaction, table: Table, key_id: str, limit: int) -> Sequence[Any]:
    """Rows whose data key is sealed with another key than this."""
    columns = [*table.primary_key.columns, table.c.key_id, table.c.sealed_key]
    return tx.rows(select(*columns).where(table.c.key_id != key_id).limit(limit))


def change_key(tx: Transaction, table: Table, row: Any, key_id: str, sealed_key: bytes) -> bool:
    """Keep the data key under another key; False where somebody has set the secret anew meanwhile."""
    same = [column == getattr(row, column.name) for column in table.primary_key.columns]
    same.append(table.c.sealed_key == row.sealed_key)
    return tx.execute(update(table).where(*same).values(key_id=key_id, sealed_key=sealed_key)).rowcount == 1
