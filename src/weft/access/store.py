"""The SQL of users, keys and what they are granted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, bindparam, delete, insert, select, update

from weft.access.model import EVERYWHERE, Grants, Key, Role, User
from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many
from weft.db.database import Transaction

users, keys, grants = schema.users, schema.api_keys, schema.grants


def add_user(tx: Transaction, name: str, password: str, at: Moment) -> int:
    row = {"name": name, "password": password, "active": True, "created_at": at}
    return _new_id(tx.execute(insert(users).values(row)).inserted_primary_key)


def user_named(tx: Transaction, name: str, *, lock: bool = False) -> tuple[User, str] | None:
    """The user and the hash of the password; with ``lock`` nobody else changes the user until the transaction ends."""
    query = select(users).where(users.c.name == name)
    row = tx.execute(query.with_for_update() if lock else query).first()
    return None if row is None else (_user(row, _granted(tx, "user", [row.id])), row.password)


def password_of(tx: Transaction, name: str) -> str | None:
    """The hash of the password; one look, whether there is such a user or not."""
    found: str | None = tx.value(select(users.c.password).where(users.c.name == name))
    return found


def has_users(tx: Transaction) -> bool:
    return tx.value(select(users.c.id).limit(1)) is not None


def admins(tx: Transaction) -> list[int]:
    """The active users who are admin everywhere, locked until the transaction ends."""
    everywhere = (grants.c.kind == "user") & (grants.c.project == EVERYWHERE) & (grants.c.role == Role.ADMIN.label)
    query = select(users.c.id).join(grants, grants.c.subject_id == users.c.id).where(everywhere, users.c.active)
    return [row.id for row in tx.rows(query.order_by(users.c.id).with_for_update())]


def user(tx: Transaction, user_id: int) -> User | None:
    row = tx.execute(select(users).where(users.c.id == user_id)).first()
    return None if row is None else _user(row, _granted(tx, "user", [row.id]))


def all_users(tx: Transaction) -> list[User]:
    rows = tx.rows(select(users).order_by(users.c.name))
    granted = _granted(tx, "user", [row.id for row in rows])
    return [_user(row, granted) for row in rows]


def change_user(tx: Transaction, user_id: int, values: Mapping[str, Any]) -> None:
    tx.execute(update(users).where(users.c.id == user_id).values(values))


def add_key(tx: Transaction, row: Mapping[str, Any]) -> int:
    labels = row.get("labels")
    kept = None if labels is None else msgspec.json.encode(labels).decode()
    return _new_id(tx.execute(insert(keys).values(dict(row) | {"labels": kept})).inserted_primary_key)


def key_by_prefix(tx: Transaction, prefix: str) -> tuple[Key, str] | None:
    """The key and the digest of its secret. Nothing is granted to workers, so nothing is looked up for them."""
    row = tx.execute(_by_prefix(), {"of": prefix}).first()
    if row is None:
        return None
    return _key(row, _granted(tx, "key", [row.id]) if row.kind == "api" else {}), row.digest


@cache
def _by_prefix() -> Select[Any]:
    return select(keys).where(keys.c.prefix == bindparam("of"))


def find_keys(tx: Transaction, *conditions: ColumnElement[bool]) -> list[Key]:
    rows = tx.rows(select(keys).where(*conditions).order_by(keys.c.id))
    granted = _granted(tx, "key", [row.id for row in rows])
    return [_key(row, granted) for row in rows]


def key(tx: Transaction, key_id: int) -> Key | None:
    found = find_keys(tx, keys.c.id == key_id)
    return found[0] if found else None


def revoke_key(tx: Transaction, key_id: int, at: Moment) -> bool:
    """Revoke a key that still counts; one that was used up or revoked before stays as it is."""
    still = (keys.c.id == key_id) & keys.c.revoked_at.is_(None)
    return tx.execute(update(keys).where(still).values(revoked_at=at)).rowcount == 1


def revoke_keys_by(tx: Transaction, name: str, at: Moment) -> int:
    """Revoke the keys that a user has made. Those of workers were made with join tokens, which have names too."""
    still = (keys.c.created_by == name) & (keys.c.kind != "worker") & keys.c.revoked_at.is_(None)
    return tx.execute(update(keys).where(still).values(revoked_at=at)).rowcount


def note_used(tx: Transaction, used: Mapping[int, Moment]) -> None:
    for key_id, at in used.items():
        tx.execute(update(keys).where(keys.c.id == key_id).values(last_used_at=at))


def grant(tx: Transaction, kind: str, subject_id: int, given: Grants) -> None:
    """Let a user or key have these roles and no others."""
    tx.execute(delete(grants).where(grants.c.kind == kind, grants.c.subject_id == subject_id))
    rows = [
        {"kind": kind, "subject_id": subject_id, "project": project, "role": role.label}
        for project, role in given.items()
    ]
    insert_many(tx, grants, rows)


def _granted(tx: Transaction, kind: str, ids: Collection[int]) -> dict[int, dict[str, Role]]:
    found: dict[int, dict[str, Role]] = {}
    query = select(grants).where(grants.c.kind == kind, grants.c.subject_id.in_(ids))
    for row in tx.rows(query) if ids else ():
        found.setdefault(row.subject_id, {})[row.project] = Role[row.role.upper()]
    return found


def _user(row: Any, granted: Mapping[int, Grants]) -> User:
    fields = {name: getattr(row, name) for name in ("id", "name", "active", "created_at")}
    return User(**fields, grants=granted.get(row.id, {}))


def _key(row: Any, granted: Mapping[int, Grants]) -> Key:
    fields = {name: getattr(row, name) for name in Key.__dataclass_fields__ if name != "grants"}
    fields["labels"] = None if row.labels is None else tuple(msgspec.json.decode(row.labels))
    return Key(**fields, grants=granted.get(row.id, {}))


def _new_id(key: Any) -> int:
    if key is None:
        raise AssertionError("an inserted row has an id")
    return int(key[0])
