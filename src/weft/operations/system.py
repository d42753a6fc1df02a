"""Information about this server: its version, its settings and the audit log."""

from __future__ import annotations

import platform
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft import __version__
from weft.access.audit import AuditEntry
from weft.access.model import Role
from weft.clock import SECOND, iso, moment, now
from weft.config import Config, Setting, load
from weft.db import schema
from weft.errors import Misconfigured
from weft.operations.operation import Call, Operations
from weft.operations.paging import Limit, Page, PageCursor, decode_number

about_operations = Operations("about")

STARTED_AT = now()
"""When this process began, as near as it matters."""


class AboutDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The process that answers."""

    version: str
    schema_version: int
    """Of the database: which tables it has."""
    database: str
    """sqlite, postgresql, mysql or mariadb."""
    python: str
    system: str
    started_at: str | None
    up_seconds: int


ABOUT_EXAMPLE: dict[str, Any] = {
    "version": __version__,
    "schema_version": schema.VERSION,
    "database": "sqlite",
    "python": "3.11.2",
    "system": "Linux 6.1 x86_64",
    "started_at": "2026-06-01T12:00:00.000Z",
    "up_seconds": 3600,
}


@about_operations.get("/about", name="show", needs=Role.VIEWER, answer=AboutDocument, example=ABOUT_EXAMPLE)
async def show_about(call: Call) -> AboutDocument:
    """Tell the version of weft, of its tables and of Python, the kind of the database, and since when it runs."""
    call.check_own()
    return AboutDocument(
        version=__version__,
        schema_version=schema.VERSION,
        database=call.app.db.engine.dialect.name,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        started_at=iso(STARTED_AT),
        up_seconds=(now() - STARTED_AT) // SECOND,
    )


operations = Operations("settings")

SETTING_EXAMPLE = {
    "name": "port",
    "value": 6800,
    "origin": "default",
    "doc": "The port that weft listens on; 0 for none.",
}


class SettingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the process that answers."""

    name: str
    value: str | float | bool
    """Secrets are dots."""
    origin: str
    """default, a file, a variable of the environment, or the command line."""
    doc: str


@operations.get(
    "/settings", needs=Role.ADMIN, answer=Page[SettingDocument], example={"items": [SETTING_EXAMPLE], "next": None}
)
async def list_(call: Call) -> Page[SettingDocument]:
    """List every setting and where its value comes from; secrets as dots."""
    call.check_everywhere()
    return Page(items=[_setting_document(each) for each in explained(call.app.config)])


def explained(config: Config) -> list[Setting]:
    """Every setting with its origin; what neither file nor environment says was said by whoever started weft."""
    try:
        found = {each.name: each for each in load().settings}
    except Misconfigured:
        found = {}
    return [_setting_named(one, config, found.get(one.name)) for one in fields(Config)]


def _setting_named(one: Any, config: Config, found: Setting | None) -> Setting:
    value = config.effective(one.name)
    if found is not None and found.value == value:
        return found
    return Setting(one.name, value, "command line", one.metadata["doc"], one.metadata.get("hidden", False))


def _setting_document(setting: Setting) -> SettingDocument:
    value = setting.shown if isinstance(setting.value, str) else setting.value
    return SettingDocument(name=setting.name, value=value, origin=setting.origin, doc=setting.doc)


audit_operations = Operations("audit")


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
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
    after: PageCursor | None = None
    limit: Limit = 50


class AuditEntryDocument(msgspec.Struct, frozen=True, kw_only=True):
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


AUDIT_EXAMPLE: dict[str, Any] = {
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


@audit_operations.get(
    "/audit",
    name="list",
    needs=Role.ADMIN,
    query=AuditQuery,
    answer=Page[AuditEntryDocument],
    example={"items": [AUDIT_EXAMPLE], "next": None},
)
async def list_audit(call: Call) -> Page[AuditEntryDocument]:
    """List what was changed and by whom, newest first; of the projects that the caller is admin of."""
    asked: AuditQuery = call.query
    where = {name: value for name in ("actor", "action", "target") if (value := getattr(asked, name)) is not None}
    found = await call.app.audit.find(
        where,
        projects=call.visible(asked.project),
        before=decode_number(asked.after),
        since=None if asked.since is None else moment(asked.since),
        refused=asked.refused,
        limit=asked.limit + 1,
    )
    return Page.of([audit_entry_document(each) for each in found], asked.limit, lambda entry: entry.id)


class AuditVerificationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the whole chain found."""

    entries: int
    """How many are as they were written, from the first on."""
    digest: str
    """Of the last of these."""
    broken: int | None
    """The first entry that is not as it was written, or is missing."""
    why: str


@audit_operations.get(
    "/audit/verify",
    name="verify",
    needs=Role.ADMIN,
    answer=AuditVerificationDocument,
    example={"entries": 12, "digest": "2e" * 32, "broken": None, "why": ""},
)
async def verify_audit(call: Call) -> AuditVerificationDocument:
    """Follow the chain of digests and name the first entry that is not as it was written."""
    call.check_everywhere()
    found = await call.app.audit.verify()
    return AuditVerificationDocument(entries=found.entries, digest=found.digest, broken=found.broken, why=found.why)


def audit_entry_document(entry: AuditEntry) -> AuditEntryDocument:
    fields = {name: getattr(entry, name) for name in AuditEntryDocument.__struct_fields__}
    fields |= {"at": iso(entry.at), "data": None if entry.data is None else msgspec.json.decode(entry.data)}
    return AuditEntryDocument(**fields)
