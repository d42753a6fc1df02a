"""The audit log: who did what, from where, to which object. It only grows.

Each entry carries the digest of the one before it, and its own digest is taken over that and all of its fields. So an
entry that was changed, removed or put in between breaks the chain at its place, and ``verify`` names it. Removing the
newest ones shows too, because the number of the last entry is kept apart. The database itself refuses to change or
delete an entry (``db/dialect_options.py``). What must stay secret is masked before it gets here.

The gateway or a command calls a front door inside an audit context. The front door says what it has changed with
``record_change(tx, …)``, as the last thing in its transaction: the entry is there if the change is, and only then.
What nobody has asked for, such as a tick of the scheduler, has no context, and nothing is recorded of it.

Of denied requests of one caller and one action a few are recorded in a minute, and of all together not many more, so
that nobody can fill the log. The others are counted, and the count is recorded once the minute is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from weft.access import store
from weft.access.model import Caller
from weft.clock import Clock, Moment, seconds
from weft.db import schema
from weft.db.batching import Batched
from weft.db.database import Database, Transaction
from weft.redaction import redacted, redacted_tree

FIRST_DIGEST = "0" * 64
"""What the first entry has in the place of a digest before it."""
MOST_READ = 1000
LARGEST_DATA = 16_000
"""Bytes of JSON that are kept beside an entry."""
ENTRY_FIELDS = ("id", "at", "actor", "address", "action", "project", "target", "data")
FIELD_LENGTHS = {"actor": 120, "address": 64, "action": 60, "project": 100, "target": 250}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
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
class AuditVerification:
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
        self._add_together = Batched(db, self._add_all)

    async def write(self, new: Mapping[str, Any]) -> None:
        """Add an entry; it is there when this returns."""
        await self._add_together(new)

    def add(self, tx: Transaction, new: Sequence[Mapping[str, Any]]) -> None:
        """Add entries in the transaction of what they tell of (``audit.py``)."""
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
    ) -> list[AuditEntry]:
        """Entries whose fields are so, of these projects or of all and of none, newest first.

        ``refused``: only those of calls that were refused, or only the others.
        """
        conditions = [schema.audit.c[name] == value for name, value in where.items()]
        conditions += [] if projects is None else [schema.audit.c.project.in_(sorted(projects))]
        conditions += [] if before is None else [schema.audit.c.id < before]
        conditions += [] if since is None else [schema.audit.c.at >= since]
        conditions += [] if refused is None else [store.is_denied(refused)]
        rows = await self._db.read(lambda tx: store.find_audit_entries(tx, *conditions, limit=limit))
        return [_read_entry(row) for row in rows]

    async def every(self) -> AsyncIterator[AuditEntry]:
        """All entries in the order in which they were written."""
        number = 0
        while rows := await self._db.read(partial(store.audit_entries_after, number=number, limit=MOST_READ)):
            for row in rows:
                yield _read_entry(row)
            number = rows[-1].id

    async def verify(self) -> AuditVerification:
        """Follow the chain from its beginning and name the first place where it is broken."""
        last = await self._db.read(store.last_audit_number)
        number, previous = 0, FIRST_DIGEST
        async for found in self.every():
            if why := _fault(found, number + 1, previous):
                return AuditVerification(number, previous, number + 1, why)
            number, previous = found.id, found.digest
        if number < last:
            return AuditVerification(number, previous, number + 1, "it is missing, and so are all after it")
        return AuditVerification(number, previous)

    def _add_all(self, tx: Transaction, new: Sequence[Mapping[str, Any]]) -> list[None]:
        first, at = store.take_audit_numbers(tx, len(new)), self._clock()
        previous = store.audit_digest(tx, first - 1) or FIRST_DIGEST
        rows: list[dict[str, Any]] = []
        for number, each in enumerate(new, first):
            row = {"id": number, "at": at, **each}
            row |= {"previous": previous, "digest": entry_digest(row, previous)}
            rows.append(row)
            previous = row["digest"]
        store.add_audit_entries(tx, rows)
        return [None] * len(new)


def audit_entry(
    caller: Caller, action: str, *, project: str = "", target: str = "", data: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The fields of a new entry, masked and of the length that can be kept."""
    said = {"actor": caller.actor, "address": caller.address, "action": action}
    said |= {"project": project, "target": redacted(target)}
    kept = {name: _storable_text(text)[: FIELD_LENGTHS[name]] for name, text in said.items()}
    return kept | {"data": _limited_data(data) if data else None}


def entry_digest(row: Mapping[str, Any], previous: str) -> str:
    """Over the digest before it and every field, each told apart from the next."""
    told = msgspec.json.encode([previous, *(row[name] for name in ENTRY_FIELDS)])
    return hashlib.sha256(told).hexdigest()


def _limited_data(data: Mapping[str, Any]) -> str:
    text = _storable_text(msgspec.json.encode(redacted_tree(msgspec.to_builtins(data))).decode())
    return text if len(text) <= LARGEST_DATA else msgspec.json.encode({"too_large": len(text)}).decode()


def _storable_text(text: str) -> str:
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _fault(found: AuditEntry, number: int, previous: str) -> str:
    if found.id != number:
        return f"it is missing: entry {found.id} comes next"
    if found.previous != previous:
        return "it does not follow from the entry before it"
    row = {name: getattr(found, name) for name in ENTRY_FIELDS}
    return "" if entry_digest(row, previous) == found.digest else "it was changed after it was written"


def _read_entry(row: Any) -> AuditEntry:
    fields = {name: getattr(row, name) for name in AuditEntry.__dataclass_fields__}
    return AuditEntry(**fields)


EntryFields = Mapping[str, Any]
AuditedDocument = Any
"""What can be JSON: a mapping or a struct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedChange:
    """What a front door says of one change."""

    before: AuditedDocument | None = None
    after: AuditedDocument | None = None
    """What it was and what it is now; None where there was, or is, nothing."""
    project: str | None = None
    target: str | None = None
    """Where and what was changed, if it is not what the door was asked for."""

    @property
    def data(self) -> dict[str, Any]:
        return {} if self.before is None and self.after is None else {"before": self.before, "after": self.after}


class AuditContext:
    """Sees one call to its end. ``entry`` makes the entry of what was told; it may refuse by raising."""

    def __init__(self, audit: Audit, entry: Callable[[AuditedChange], EntryFields]) -> None:
        self._audit, self._entry = audit, entry
        self.has_recorded = False

    def tell(self, tx: Transaction, changes: Sequence[AuditedChange]) -> None:
        self._audit.add(tx, [self._entry(each) for each in changes])
        tx.after_commit(self._remember)

    async def record_afterwards(self) -> None:
        """Tell of a call whose front door did not."""
        if not self.has_recorded:
            await self._audit.write(self._entry(AuditedChange()))

    def _remember(self) -> None:
        self.has_recorded = True


_context: ContextVar[AuditContext | None] = ContextVar("audit_context", default=None)


@contextmanager
def audited(context: AuditContext) -> Iterator[None]:
    """What front doors record inside goes to ``context``."""
    before = _context.set(context)
    try:
        yield
    finally:
        _context.reset(before)


def record_change(
    tx: Transaction, *, before: AuditedDocument | None = None, after: AuditedDocument | None = None
) -> None:
    """Tell the audit log what this transaction has changed. Others who tell wait from here until it has ended."""
    record_changes(tx, [AuditedChange(before=before, after=after)])


def record_changes(tx: Transaction, changes: Sequence[AuditedChange]) -> None:
    if changes and (context := _context.get()) is not None:
        context.tell(tx, changes)


MOST_EACH = 5
MOST_IN_ALL = 60
MINUTE = seconds(60)
MOST_CALLERS = 10_000


@dataclass(slots=True)
class DeniedMinute:
    """What one caller was refused since then."""

    since: Moment
    caller: Caller
    action: str
    told: int = 0
    left_out: int = 0


class DeniedRequests:
    """What was refused of late, as far as this process knows."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit, self._clock = audit, clock
        self._minutes: dict[tuple[str, str, str], DeniedMinute] = {}
        self._all = DeniedMinute(0, Caller(name="", kind=""), "")

    async def tell(self, caller: Caller, action: str, code: str, *, project: str = "", target: str = "") -> None:
        """Add an entry, or count this one with those that are left out."""
        minute = self._minute(caller, action)
        if minute.told >= MOST_EACH or not self._has_place():
            minute.left_out += 1
            return
        minute.told += 1
        data = {"refused": True, "code": code}
        await self._audit.write(audit_entry(caller, action, project=project, target=target, data=data))

    async def tick(self) -> int:
        """Tell how many were left out in minutes that are over; return for how many callers."""
        at = self._clock()
        over = {key: each for key, each in self._minutes.items() if at - each.since >= MINUTE}
        told = 0
        for key, each in over.items():
            if each.left_out and not self._has_place():
                continue
            del self._minutes[key]
            if each.left_out:
                told += 1
                data = {"refused": True, "left_out": each.left_out}
                await self._audit.write(audit_entry(each.caller, each.action, data=data))
        return told

    def _minute(self, caller: Caller, action: str) -> DeniedMinute:
        """The minute in which this caller was first refused this; it lasts until a tick ends it.

        Where there are too many callers, the rest is counted for all of them together.
        """
        key = (caller.actor, caller.address, action)
        if key not in self._minutes and len(self._minutes) >= MOST_CALLERS:
            caller, action = Caller(name="many", kind="nobody"), "*"
            key = (caller.actor, "", action)
        return self._minutes.setdefault(key, DeniedMinute(self._clock(), caller, action))

    def _has_place(self) -> bool:
        """Whether one more may be told now; it is counted."""
        if not 0 <= self._clock() - self._all.since < MINUTE:
            self._all.since, self._all.told = self._clock(), 0
        self._all.told += 1
        return self._all.told <= MOST_IN_ALL
