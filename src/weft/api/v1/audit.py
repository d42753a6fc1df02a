"""The audit log: who did what, from where, to which thing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft.access.audit import Entry
from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, page
from weft.clock import iso, moment

operations = Operations("audit")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to list."""

    project: str | None = None
    actor: str | None = None
    """Kind and name: ``user:ada``, ``key:ci``, ``local:root``."""
    action: str | None = None
    """The name of an operation: ``runs.cancel``."""
    target: str | None = None
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    refused: bool | None = None
    """Only what was refused, or only the rest."""
    after: After | None = None
    limit: Limit = 50


class EntryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody did."""

    id: int
    at: str | None
    actor: str
    address: str
    action: str
    project: str
    target: str
    data: dict[str, Any] | None
    """``before`` and ``after`` of what was changed; else what was sent. Secrets are dots."""
    previous: str
    """The digest of the entry before it."""
    digest: str


EXAMPLE: dict[str, Any] = {
    "id": 12,
    "at": "2026-06-01T12:00:00.000Z",
    "actor": "user:ada",
    "address": "192.0.2.7",
    "action": "tasks.put",
    "project": "shop",
    "target": "task shop/prices",
    "data": {"request_id": "5f0c", "before": {"priority": 1}, "after": {"priority": 5}},
    "previous": "1f" * 32,
    "digest": "2e" * 32,
}


@operations.get(
    "/audit",
    needs=Role.ADMIN,
    query=Filter,
    answer=Page[EntryDocument],
    example={"items": [EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[EntryDocument]:
    """List what was changed and by whom, newest first; of the projects that the caller is admin of."""
    asked: Filter = call.query
    where = {name: value for name in ("actor", "action", "target") if (value := getattr(asked, name)) is not None}
    found = await call.app.audit.find(
        where,
        projects=call.visible(asked.project),
        before=page(asked.after),
        since=None if asked.since is None else moment(asked.since),
        refused=asked.refused,
        limit=asked.limit + 1,
    )
    return Page.of([entry_document(each) for each in found], asked.limit, lambda entry: entry.id)


class VerifiedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the whole chain found."""

    entries: int
    """How many are as they were written, from the first on."""
    digest: str
    """Of the last of these."""
    broken: int | None
    """The first entry that is not as it was written, or is missing."""
    why: str


@operations.get(
    "/audit/verify",
    needs=Role.ADMIN,
    answer=VerifiedDocument,
    example={"entries": 12, "digest": "2e" * 32, "broken": None, "why": ""},
)
async def verify(call: Call) -> VerifiedDocument:
    """Follow the chain of digests and name the first entry that is not as it was written."""
    call.check_everywhere()
    found = await call.app.audit.verify()
    return VerifiedDocument(entries=found.entries, digest=found.digest, broken=found.broken, why=found.why)


def entry_document(entry: Entry) -> EntryDocument:
    fields = {name: getattr(entry, name) for name in EntryDocument.__struct_fields__}
    fields |= {"at": iso(entry.at), "data": None if entry.data is None else msgspec.json.decode(entry.data)}
    return EntryDocument(**fields)
