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

from weft.access import secret_store
from weft.access.sealing import Sealer
from weft.access.witness import tell
from weft.clock import Clock, Moment, iso
from weft.db.database import Database, Transaction
from weft.errors import Invalid, NotFound
from weft.redaction import SHORTEST

MARK = "{{secret:"
REFERENCE = re.compile(r"\{\{secret:\s*([^{}\s]+)\s*\}\}")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
LARGEST = 32_768
MOST_RESEALED = 100
CODE = frozenset({"script"})
"""Fields that are code: a value that is put in there would be executed and seen in the list of processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret, as it may be shown."""

    project: str
    name: str
    updated_at: Moment
    updated_by: str


class Secrets:
    def __init__(self, db: Database, sealer: Sealer, clock: Clock) -> None:
        self._db, self._sealer, self._clock = db, sealer, clock

    async def set(self, project: str, name: str, value: str, *, by: str) -> Secret:
        """Set a secret; an earlier value is gone."""
        _check(project, name)
        if not SHORTEST <= len(value) <= LARGEST or "\0" in value:
            raise Invalid(f"the value of {name}", "•" * 4, f"it must be a text of {SHORTEST} to {LARGEST} characters")
        sealed = self._sealer.seal(value.encode(), _about(project, name))
        secret = Secret(project=project, name=name, updated_at=self._clock(), updated_by=by)
        values = sealed._asdict() | {"updated_at": secret.updated_at, "updated_by": by}

        def work(tx: Transaction) -> Secret:
            before = _listed(tx, project).get(name)
            secret_store.put(tx, project, name, values)
            tell(tx, before=_told(before), after=_told(secret))
            return secret

        return await self._db.transact(work)

    async def all(self, project: str) -> list[Secret]:
        return list((await self._db.read(lambda tx: _listed(tx, project))).values())

    async def delete(self, project: str, name: str) -> None:
        def work(tx: Transaction) -> None:
            before = _listed(tx, project).get(name)
            if not secret_store.remove(tx, project, name):
                raise NotFound("secret", name)
            tell(tx, before=_told(before))

        await self._db.transact(work)

    async def open(self, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The values of those that there are, by project and name; for workers that hold a run of that project."""
        sealed = await self._db.read(lambda tx: secret_store.sealed(tx, wanted))
        return {key: self._sealer.unseal(*each, _about(*key)).decode() for key, each in sealed.items()}

    async def rotate(self) -> int:
        """Seal every data key with the newest key; return how many.

        Where nothing is left from an earlier change of the key, a new one is made first. May be stopped at any time
        and called again: what was sealed anew stays so.
        """
        if self._sealer.makes_keys and not await self._db.read(self._is_left_over):
            self._sealer.make_key()
        count = 0
        while resealed := await self._db.transact(self._reseal_some):
            count += resealed
        return count

    def _is_left_over(self, tx: Transaction) -> bool:
        newest = self._sealer.newest()
        return any(secret_store.sealed_otherwise(tx, table, newest, 1) for table in secret_store.SEALED)

    def _reseal_some(self, tx: Transaction) -> int:
        newest = self._sealer.newest()
        for table in secret_store.SEALED:
            rows = secret_store.sealed_otherwise(tx, table, newest, MOST_RESEALED)
            for row in rows:
                secret_store.change_key(tx, table, row, *self._sealer.reseal(row.key_id, bytes(row.sealed_key)))
            if rows:
                return len(rows)
        return 0


def _listed(tx: Transaction, project: str) -> dict[str, Secret]:
    return {
        name: Secret(project=project, name=name, updated_at=at, updated_by=by)
        for name, at, by in secret_store.listed(tx, project)
    }


def _told(secret: Secret | None) -> dict[str, Any] | None:
    """What the audit log is told of a secret."""
    return None if secret is None else {"updated_at": iso(secret.updated_at), "updated_by": secret.updated_by}


def names_in(value: Any) -> set[str]:
    """The secrets that the texts of a JSON value ask for."""
    if isinstance(value, str):
        return set(REFERENCE.findall(value)) if MARK in value else set()
    if isinstance(value, Mapping):
        return {name for key, each in value.items() for name in _names_in_field(key, each)}
    if isinstance(value, list | tuple):
        return {name for each in value for name in names_in(each)}
    return set()


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """A JSON value with every reference in its texts replaced by the secret's value."""
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: values[found[1]], value) if MARK in value else value
    if isinstance(value, Mapping):
        return {key: filled(each, values) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [filled(each, values) for each in value]
    return value


def _names_in_field(key: str, value: Any) -> set[str]:
    found = names_in(value)
    if found and key in CODE:
        raise Invalid(key, f"{MARK}{min(found)}}}}}", "it is code: give the secret to it by env")
    return found


def _check(project: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise Invalid("the name of a secret", name, "it must be letters, digits, '_', '.' or '-', at most 100")
    if not NAME.fullmatch(project):
        raise Invalid("project", project, "it must be letters, digits, '_', '.' or '-', at most 100")


def _about(project: str, name: str) -> str:
    return f"secret {project}/{name}"
