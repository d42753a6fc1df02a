"""The front door to secrets: set, list and delete them, and open those that a run asks for.

A secret belongs to a project and is write-only: nothing but the lease of a run of that project ever gives it back.
A task asks for one by ``{{secret:NAME}}`` in a text of its spec or of a parameter's default. The run is kept as it was
written; the value is put in its place when a worker starts an attempt.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from weft.access import store
from weft.access.audit import record_change
from weft.access.encryption import Encryptor
from weft.clock import Clock, Moment, iso
from weft.db.database import Database, Transaction
from weft.errors import Invalid, NotFound
from weft.redaction import SHORTEST

REFERENCE_START = "{{secret:"
REFERENCE = re.compile(r"\{\{secret:\s*([^{}\s]+)\s*\}\}")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
LARGEST_SECRET = 32_768
MOST_REENCRYPTED = 100
CODE_FIELDS = frozenset({"script"})
"""Fields that are code: a value that is put in there would be executed and seen in the list of processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret, as it may be shown."""

    project: str
    name: str
    updated_at: Moment
    updated_by: str


class Secrets:
    def __init__(self, db: Database, encryptor: Encryptor, clock: Clock) -> None:
        self._db, self._encryptor, self._clock = db, encryptor, clock

    async def set(self, project: str, name: str, value: str, *, by: str) -> Secret:
        """Set a secret; an earlier value is gone."""
        _check_name(project, name)
        if not SHORTEST <= len(value) <= LARGEST_SECRET or "\0" in value:
            raise Invalid(
                f"the value of {name}", "•" * 4, f"it must be a text of {SHORTEST} to {LARGEST_SECRET} characters"
            )
        sealed = self._encryptor.encrypt(value.encode(), _about(project, name))
        secret = Secret(project=project, name=name, updated_at=self._clock(), updated_by=by)
        values = sealed._asdict() | {"updated_at": secret.updated_at, "updated_by": by}

        def work(tx: Transaction) -> Secret:
            before = _listed(tx, project).get(name)
            store.put_secret(tx, project, name, values)
            record_change(tx, before=_audited(before), after=_audited(secret))
            return secret

        return await self._db.transact(work)

    async def all(self, project: str) -> list[Secret]:
        return list((await self._db.read(lambda tx: _listed(tx, project))).values())

    async def delete(self, project: str, name: str) -> None:
        def work(tx: Transaction) -> None:
            before = _listed(tx, project).get(name)
            if not store.remove_secret(tx, project, name):
                raise NotFound("secret", name)
            record_change(tx, before=_audited(before))

        await self._db.transact(work)

    async def open(self, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The values of those that there are, by project and name; for workers that hold a run of that project."""
        sealed = await self._db.read(lambda tx: store.encrypted_secrets(tx, wanted))
        return {key: self._encryptor.decrypt(*each, _about(*key)).decode() for key, each in sealed.items()}

    async def rotate(self) -> int:
        """Seal every data key with the newest key; return how many.

        Where nothing is left from an earlier change of the key, a new one is made first. May be stopped at any time
        and called again: what was sealed anew stays so.
        """
        if self._encryptor.makes_keys and not await self._db.read(self._is_left_over):
            self._encryptor.make_key()
        count = 0
        while resealed := await self._db.transact(self._reencrypt_some):
            count += resealed
        return count

    def _is_left_over(self, tx: Transaction) -> bool:
        newest = self._encryptor.newest()
        return any(store.encrypted_with_other_keys(tx, table, newest, 1) for table in store.ENCRYPTED_TABLES)

    def _reencrypt_some(self, tx: Transaction) -> int:
        newest = self._encryptor.newest()
        for table in store.ENCRYPTED_TABLES:
            rows = store.encrypted_with_other_keys(tx, table, newest, MOST_REENCRYPTED)
            for row in rows:
                store.change_data_key(tx, table, row, *self._encryptor.reencrypt(row.key_id, bytes(row.sealed_key)))
            if rows:
                return len(rows)
        return 0


def _listed(tx: Transaction, project: str) -> dict[str, Secret]:
    return {
        name: Secret(project=project, name=name, updated_at=at, updated_by=by)
        for name, at, by in store.list_secrets(tx, project)
    }


def _audited(secret: Secret | None) -> dict[str, Any] | None:
    """What the audit log is told of a secret."""
    return None if secret is None else {"updated_at": iso(secret.updated_at), "updated_by": secret.updated_by}


def names_in(value: Any) -> set[str]:
    """The secrets that the texts of a JSON value ask for."""
    if isinstance(value, str):
        return set(REFERENCE.findall(value)) if REFERENCE_START in value else set()
    if isinstance(value, Mapping):
        return {name for key, each in value.items() for name in _names_in_field(key, each)}
    if isinstance(value, list | tuple):
        return {name for each in value for name in names_in(each)}
    return set()


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """A JSON value with every reference in its texts replaced by the secret's value."""
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: values[found[1]], value) if REFERENCE_START in value else value
    if isinstance(value, Mapping):
        return {key: filled(each, values) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [filled(each, values) for each in value]
    return value


def _names_in_field(key: str, value: Any) -> set[str]:
    found = names_in(value)
    if found and key in CODE_FIELDS:
        raise Invalid(key, f"{REFERENCE_START}{min(found)}}}}}", "it is code: give the secret to it by env")
    return found


def _check_name(project: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise Invalid("the name of a secret", name, "it must be letters, digits, '_', '.' or '-', at most 100")
    if not NAME.fullmatch(project):
        raise Invalid("project", project, "it must be letters, digits, '_', '.' or '-', at most 100")


def _about(project: str, name: str) -> str:
    return f"secret {project}/{name}"
