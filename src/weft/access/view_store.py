"""The SQL of saved views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select

from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction

views = schema.views


def add(tx: Transaction, values: Mapping[str, Any]) -> bool:
    """Keep a view; False where the page has one of this name."""
    if named(tx, values["page"], values["name"]) is not None:
        return False
    insert_missing(tx, views, values)
    kept = named(tx, values["page"], values["name"])
    return kept is not None and all(getattr(kept, name) == value for name, value in values.items())


def named(tx: Transaction, page: str, name: str) -> Any:
    return tx.execute(select(views).where(views.c.page == page, views.c.name == name)).first()


def get(tx: Transaction, view_id: int) -> Any:
    return tx.execute(select(views).where(views.c.id == view_id)).first()


def of_page(tx: Transaction, page: str) -> Sequence[Any]:
    return tx.rows(select(views).where(views.c.page == page).order_by(views.c.name))


def count(tx: Transaction, page: str) -> int:
    return int(tx.value(select(func.count()).where(views.c.page == page)))


def remove(tx: Transaction, view_id: int) -> bool:
    return tx.execute(delete(views).where(views.c.id == view_id)).rowcount == 1
