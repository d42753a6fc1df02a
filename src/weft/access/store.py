"""The SQL of users, keys, grants, sessions, failed logins, guest links, saved views, the audit log and secrets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, Table, bindparam, delete, func, insert, not_, or_, select, tuple_, update

from weft.access.encryption import Encrypted
from weft.access.model import EVERYWHERE, Grants, GuestLink, Key, Role, Session, User
from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing
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


def user_by_id(tx: Transaction, user_id: int) -> User | None:
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


def key_by_id(tx: Transaction, key_id: int) -> Key | None:
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


def note_keys_used(tx: Transaction, used: Mapping[int, Moment]) -> None:
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


sessions, failures = schema.sessions, schema.login_failures

HANDLE = 16
"""Characters of the digest that name a session."""


def add_session(tx: Transaction, row: Mapping[str, Any]) -> None:
    tx.execute(insert(sessions).values(row))


def find_session(tx: Transaction, digest: str) -> Session | None:
    row = tx.execute(select(sessions).where(sessions.c.digest == digest)).first()
    user = None if row is None else user_by_id(tx, row.user_id)
    return None if row is None or user is None else _session(row, user)


def sessions_of(tx: Transaction, user_id: int) -> list[Session]:
    """The sessions of a user, the one that was used last first."""
    user = user_by_id(tx, user_id)
    rows = tx.rows(select(sessions).where(sessions.c.user_id == user_id).order_by(sessions.c.seen_at.desc()))
    return [] if user is None else [_session(row, user) for row in rows]


def _session(row: Any, user: User) -> Session:
    shown = {name: getattr(row, name) for name in ("csrf", "created_at", "seen_at", "address", "agent")}
    return Session(user=user, handle=session_handle(row.digest), **shown)


def session_handle(digest: str) -> str:
    return digest[:HANDLE]


def touch_session(tx: Transaction, digest: str, at: Moment) -> None:
    tx.execute(update(sessions).where(sessions.c.digest == digest).values(seen_at=at))


def end_session(tx: Transaction, digest: str) -> None:
    tx.execute(delete(sessions).where(sessions.c.digest == digest))


def end_session_of(tx: Transaction, user_id: int, named: str) -> bool:
    """End the session of a user that has this handle; False where there is none."""
    digests = [row.digest for row in tx.rows(select(sessions.c.digest).where(sessions.c.user_id == user_id))]
    found = [digest for digest in digests if session_handle(digest) == named]
    for digest in found:
        end_session(tx, digest)
    return bool(found)


def end_sessions_of(tx: Transaction, user_id: int) -> int:
    return tx.execute(delete(sessions).where(sessions.c.user_id == user_id)).rowcount


def forget_sessions(tx: Transaction, *, seen_before: Moment, created_before: Moment) -> int:
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


def forget_failures_of(tx: Transaction, subject: str) -> None:
    tx.execute(delete(failures).where(failures.c.subject == subject))


def undo_failure(tx: Transaction, subject: str, at: Moment) -> None:
    """Undo the counting of one attempt that turned out well."""
    counted = (failures.c.subject == subject) & (failures.c.failures > 0)
    tx.execute(update(failures).where(counted).values(failures=failures.c.failures - 1, blocked_until=at))


def set_back(tx: Transaction, since: Moment, by: Moment) -> None:
    """Let waits that end after ``since`` end earlier by so much."""
    column = failures.c.blocked_until
    tx.execute(update(failures).where(column > since).values(blocked_until=column - by))


def forget_old_failures(tx: Transaction, before: Moment) -> int:
    return tx.execute(delete(failures).where(failures.c.at < before)).rowcount


guest_links = schema.guest_links
GUEST_LINK_COLUMNS = tuple(guest_links.c[name] for name in GuestLink.__dataclass_fields__)


def add_guest_link(tx: Transaction, row: Mapping[str, Any]) -> int:
    """Keep a link; of its token only the digest."""
    key: Any = tx.execute(insert(guest_links).values(**row)).inserted_primary_key
    return int(key[0])


def guest_link(tx: Transaction, guest_link_id: int) -> GuestLink | None:
    return _guest_link(tx.execute(select(*GUEST_LINK_COLUMNS).where(guest_links.c.id == guest_link_id)).first())


def guest_link_by_digest(tx: Transaction, digest: str) -> GuestLink | None:
    """The link whose token has this digest, whether it counts or not."""
    return _guest_link(tx.execute(select(*GUEST_LINK_COLUMNS).where(guest_links.c.digest == digest)).first())


def guest_link_page(
    tx: Transaction, projects: Collection[str] | None, below: int | None, limit: int
) -> list[GuestLink]:
    """Links of these projects, newest first."""
    query = select(*GUEST_LINK_COLUMNS).order_by(guest_links.c.id.desc()).limit(limit)
    if projects is not None:
        query = query.where(guest_links.c.project.in_(sorted(projects)))
    if below is not None:
        query = query.where(guest_links.c.id < below)
    return [GuestLink(**row._mapping) for row in tx.rows(query)]


def count_valid_guest_links(tx: Transaction, project: str, at: Moment) -> int:
    """How many links of a project count."""
    lasts = guest_links.c.expires_at.is_(None) | (guest_links.c.expires_at > at)
    query = select(guest_links.c.id).where(guest_links.c.project == project, guest_links.c.revoked_at.is_(None), lasts)
    return len(tx.rows(query))


def revoke_guest_link(tx: Transaction, guest_link_id: int, at: Moment) -> None:
    tx.execute(
        update(guest_links)
        .where(guest_links.c.id == guest_link_id, guest_links.c.revoked_at.is_(None))
        .values(revoked_at=at)
    )


def note_guest_links_used(tx: Transaction, used: Mapping[int, Moment]) -> None:
    for guest_link_id, at in sorted(used.items()):
        tx.execute(update(guest_links).where(guest_links.c.id == guest_link_id).values(used_at=at))


def _guest_link(row: Any) -> GuestLink | None:
    return None if row is None else GuestLink(**row._mapping)


views = schema.views


def add_view(tx: Transaction, values: Mapping[str, Any]) -> bool:
    """Keep a view; False where the page has one of this name."""
    if view_named(tx, values["page"], values["name"]) is not None:
        return False
    insert_missing(tx, views, values)
    kept = view_named(tx, values["page"], values["name"])
    return kept is not None and all(getattr(kept, name) == value for name, value in values.items())


def view_named(tx: Transaction, page: str, name: str) -> Any:
    return tx.execute(select(views).where(views.c.page == page, views.c.name == name)).first()


def view(tx: Transaction, view_id: int) -> Any:
    return tx.execute(select(views).where(views.c.id == view_id)).first()


def views_of_page(tx: Transaction, page: str) -> Sequence[Any]:
    return tx.rows(select(views).where(views.c.page == page).order_by(views.c.name))


def count_views(tx: Transaction, page: str) -> int:
    return int(tx.value(select(func.count()).where(views.c.page == page)))


def remove_view(tx: Transaction, view_id: int) -> bool:
    return tx.execute(delete(views).where(views.c.id == view_id)).rowcount == 1


audit, sequences = schema.audit, schema.sequences

LAST_AUDIT_NUMBER = "audit"
"""The row of ``sequences`` that has the number of the last entry: whoever holds it adds the next ones."""


DENIED_PREFIX = '{"refused":true'
"""How the data of a refusal begins (``DeniedRequests``)."""


def take_audit_numbers(tx: Transaction, count: int) -> int:
    """The first of ``count`` numbers without a gap; others that want to add wait until this transaction ends."""
    mine = update(sequences).where(sequences.c.name == LAST_AUDIT_NUMBER).values(last=sequences.c.last + count)
    if not tx.execute(mine).rowcount:
        insert_missing(tx, sequences, {"name": LAST_AUDIT_NUMBER, "last": 0})
        tx.execute(mine)
    return (
        int(tx.value(select(sequences.c.last).where(sequences.c.name == LAST_AUDIT_NUMBER).with_for_update()))
        - count
        + 1
    )


def audit_digest(tx: Transaction, number: int) -> str | None:
    """The digest of one entry. Locked, so that it is read as it is now and not as it was when a snapshot was taken."""
    found = tx.value(select(audit.c.digest).where(audit.c.id == number).with_for_update())
    return None if found is None else str(found)


def add_audit_entries(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    insert_many(tx, audit, rows)


def audit_entries_after(tx: Transaction, number: int, limit: int) -> Sequence[Any]:
    """The entries that follow this one, in order."""
    return tx.rows(select(audit).where(audit.c.id > number).order_by(audit.c.id).limit(limit))


def find_audit_entries(tx: Transaction, *conditions: ColumnElement[bool], limit: int) -> Sequence[Any]:
    """Entries that meet the conditions, newest first."""
    return tx.rows(select(audit).where(*conditions).order_by(audit.c.id.desc()).limit(limit))


def is_denied(wanted: bool) -> ColumnElement[bool]:
    """Entries of calls that were refused, or all others. What was sent never stands at the beginning of the data."""
    refused = audit.c.data.startswith(DENIED_PREFIX)
    return refused if wanted else or_(audit.c.data.is_(None), not_(refused))


def last_audit_number(tx: Transaction) -> int:
    """The number of the last entry that was ever added."""
    return int(tx.value(select(sequences.c.last).where(sequences.c.name == LAST_AUDIT_NUMBER)) or 0)


secrets = schema.secrets

ENCRYPTED_TABLES: tuple[Table, ...] = (schema.secrets, schema.webhooks)
"""Every table with the columns ``key_id``, ``sealed_key`` and ``sealed``."""


def put_secret(tx: Transaction, project: str, name: str, values: Mapping[str, Any]) -> None:
    """Set a secret, whether there is one of this name or not."""
    key = {"project": project, "name": name}
    insert_missing(tx, secrets, key | dict(values))
    tx.execute(update(secrets).where(secrets.c.project == project, secrets.c.name == name).values(dict(values)))


def list_secrets(tx: Transaction, project: str) -> list[tuple[str, Moment, str]]:
    """Name, time and person of the last change of each, by name."""
    query = select(secrets.c.name, secrets.c.updated_at, secrets.c.updated_by)
    return [tuple(row) for row in tx.rows(query.where(secrets.c.project == project).order_by(secrets.c.name))]


def remove_secret(tx: Transaction, project: str, name: str) -> bool:
    gone = delete(secrets).where(secrets.c.project == project, secrets.c.name == name)
    return tx.execute(gone).rowcount == 1


def encrypted_secrets(tx: Transaction, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], Encrypted]:
    """Those of the wanted secrets that there are, by project and name."""
    which = tuple_(secrets.c.project, secrets.c.name).in_(list(wanted))
    rows = tx.rows(select(secrets).where(which)) if wanted else ()
    return {(row.project, row.name): Encrypted(row.key_id, bytes(row.sealed_key), bytes(row.sealed)) for row in rows}


def encrypted_with_other_keys(tx: Transaction, table: Table, key_id: str, limit: int) -> Sequence[Any]:
    """Rows whose data key is sealed with another key than this."""
    columns = [*table.primary_key.columns, table.c.key_id, table.c.sealed_key]
    return tx.rows(select(*columns).where(table.c.key_id != key_id).limit(limit))


def change_data_key(tx: Transaction, table: Table, row: Any, key_id: str, sealed_key: bytes) -> bool:
    """Keep the data key under another key; False where somebody has set the secret anew meanwhile."""
    same = [column == getattr(row, column.name) for column in table.primary_key.columns]
    same.append(table.c.sealed_key == row.sealed_key)
    return tx.execute(update(table).where(*same).values(key_id=key_id, sealed_key=sealed_key)).rowcount == 1
