"""The audit log: who did what, from where, to which thing. It only grows.

Each entry carries the digest of the one before it, and its own digest is taken over that and all of its fields. So an
entry that was changed, removed or put in between breaks the chain at its place, and ``verify`` names it. Removing the
newest ones shows too, because the number of the last entry is kept apart. The database itself refuses to change or
delete an entry (``db/append_only.py``). What must stay secret is masked before it gets here.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from weft.access import audit_store
from weft.access.model import Caller
from weft.clock import Clock, Moment
from weft.db import schema
from weft.db.database import Database, Transaction
from weft.db.together import Together
from weft.redaction import redacted, redacted_tree

BEGINNING = "0" * 64
"""What the first entry has in the place of a digest before it."""
MOST_READ = 1000
LARGEST_DATA = 16_000
"""Bytes of JSON that are kept beside an entry."""
FIELDS = ("id", "at", "actor", "address", "action", "project", "target", "data")
LENGTHS = {"actor": 120, "address": 64, "action": 60, "project": 100, "target": 250}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that somebody did."""

    id: int
    at: Moment
    actor: str
    """The kind and the name of who did it: ``user:ann``, ``key:ci``, ``local:root``."""
    address: str
    action: str
    project: str
    target: str
    data: str | None
    """What it was done with, as JSON."""
    previous: str
    digest: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What a look at the whole chain found."""

    entries: int
    digest: str
    """Of the last entry that is as it was. Kept elsewhere, it tells later whether anything up to there was changed."""
    broken: int | None = None
    """The first entry that is not as it was written, or is missing."""
    why: str = ""


class Audit:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._add_together = Together(db, self._add_all)

    async def write(self, new: Mapping[str, Any]) -> None:
        """Add an entry; it is there when this returns."""
        await self._add_together(new)

    def add(self, tx: Transaction, new: Sequence[Mapping[str, Any]]) -> None:
        """Add entries in the transaction of what they tell of (``witness.py``)."""
        self._add_all(tx, new)

    async def find(
        self,
        where: Mapping[str, str],
        *,
        projects: Collection[str] | None = None,
        before: int | None = None,
        since: Moment | None = None,
        refused: bool | None = None,
        limit: int = 50,
    ) -> list[Entry]:
        """Entries whose fields are so, of these projects or of all and of none, newest first.

        ``refused``: only those of calls that were refused, or only the others.
        """
        conditions = [schema.audit.c[name] == value for name, value in where.items()]
        conditions += [] if projects is None else [schema.audit.c.project.in_(sorted(projects))]
        conditions += [] if before is None else [schema.audit.c.id < before]
        conditions += [] if since is None else [schema.audit.c.at >= since]
        conditions += [] if refused is None else [audit_store.is_refused(refused)]
        rows = await self._db.read(lambda tx: audit_store.find(tx, *conditions, limit=limit))
        return [_entry(row) for row in rows]

    async def every(self) -> AsyncIterator[Entry]:
        """All entries in the order in which they were written."""
        number = 0
        while rows := await self._db.read(partial(audit_store.after, number=number, limit=MOST_READ)):
            for row in rows:
                yield _entry(row)
            number = rows[-1].id

    async def verify(self) -> Verified:
        """Follow the chain from its beginning and name the first place where it is broken."""
        last = await self._db.read(audit_store.last_number)
        number, previous = 0, BEGINNING
        async for found in self.every():
            if why := _fault(found, number + 1, previous):
                return Verified(number, previous, number + 1, why)
            number, previous = found.id, found.digest
        if number < last:
            return Verified(number, previous, number + 1, "it is missing, and so are all after it")
        return Verified(number, previous)

    def _add_all(self, tx: Transaction, new: Sequence[Mapping[str, Any]]) -> list[None]:
        first, at = audit_store.take_numbers(tx, len(new)), self._clock()
        previous = audit_store.digest_of(tx, first - 1) or BEGINNING
        rows: list[dict[str, Any]] = []
        for number, each in enumerate(new, first):
            row = {"id": number, "at": at, **each}
            row |= {"previous": previous, "digest": digest(row, previous)}
            rows.append(row)
            previous = row["digest"]
        audit_store.add(tx, rows)
        return [None] * len(new)


def entry(
    caller: Caller, action: str, *, project: str = "", target: str = "", data: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The fields of a new entry, masked and of the length that can be kept."""
    said = {"actor": caller.actor, "address": caller.address, "action": action}
    said |= {"project": project, "target": redacted(target)}
    kept = {name: _storable(text)[: LENGTHS[name]] for name, text in said.items()}
    return kept | {"data": _kept(data) if data else None}


def digest(row: Mapping[str, Any], previous: str) -> str:
    """Over the digest before it and every field, each told apart from the next."""
    told = msgspec.json.encode([previous, *(row[name] for name in FIELDS)])
    return hashlib.sha256(told).hexdigest()


def _kept(data: Mapping[str, Any]) -> str:
    text = _storable(msgspec.json.encode(redacted_tree(msgspec.to_builtins(data))).decode())
    return text if len(text) <= LARGEST_DATA else msgspec.json.encode({"too_large": len(text)}).decode()


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _fault(found: Entry, number: int, previous: str) -> str:
    if found.id != number:
        return f"it is missing: entry {found.id} comes next"
    if found.previous != previous:
        return "it does not follow from the entry before it"
    row = {name: getattr(found, name) for name in FIELDS}
    return "" if digest(row, previous) == found.digest else "it was changed after it was written"


def _entry(row: Any) -> Entry:
    fields = {name: getattr(row, name) for name in Entry.__dataclass_fields__}
    return Entry(**fields)
