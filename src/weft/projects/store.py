"""The SQL of projects' code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import delete, insert, or_, select, tuple_, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction
from weft.projects.model import Code, ProjectTrust, SourceWarning, Spider, Version
from weft.user_code import Network, ports_of

projects, versions, runs = schema.projects, schema.versions, schema.runs

DEFAULT_WEIGHT = 1.0
BY_WEFT = "weft"
"""Who has deployed the example."""


def listed(tx: Transaction, project: str) -> list[Version]:
    """Every version of a project, in no order."""
    now = current(tx, project)
    return [_version(row, now) for row in tx.rows(select(versions).where(versions.c.project == project))]


def names(tx: Transaction, project: str) -> list[str]:
    """What the versions of a project are called, in no order."""
    return [row[0] for row in tx.rows(select(versions.c.version).where(versions.c.project == project))]


def some(tx: Transaction, project: str, wanted: Collection[str]) -> list[Version]:
    """These versions of a project, in no order."""
    now = current(tx, project)
    query = select(versions).where(versions.c.project == project, versions.c.version.in_(list(wanted)))
    return [_version(row, now) for row in tx.rows(query)]


def with_code(tx: Transaction) -> list[str]:
    """The projects that have a version."""
    return [row[0] for row in tx.rows(select(versions.c.project).distinct().order_by(versions.c.project))]


def get(tx: Transaction, project: str, version: str, *, lock: bool = False) -> Version | None:
    """The version; with ``lock`` no run can be pinned to it until the transaction ends."""
    query = select(versions).where(versions.c.project == project, versions.c.version == version)
    row = tx.execute(query.with_for_update() if lock else query).first()
    return None if row is None else _version(row, current(tx, project))


def current(tx: Transaction, project: str) -> str | None:
    found = tx.value(select(projects.c.current_version).where(projects.c.name == project))
    return None if found is None else str(found)


def hold(tx: Transaction, project: str) -> None:
    """Make the project where there is none, and let no other transaction change its code until this one ends."""
    insert_missing(tx, projects, {"name": project, "weight": DEFAULT_WEIGHT})
    tx.rows(select(projects.c.name).where(projects.c.name == project).with_for_update())


def set_current(tx: Transaction, project: str, version: str | None) -> None:
    tx.execute(update(projects).where(projects.c.name == project).values(current_version=version))


def add(tx: Transaction, version: Version) -> None:
    row = {
        "project": version.project,
        "version": version.version,
        "digest": version.digest,
        "size": version.size,
        "format": version.format,
        "code": msgspec.json.encode(version.code).decode(),
        "spiders": msgspec.json.encode(version.spiders).decode(),
        "deployed_at": version.deployed_at,
        "deployed_by": version.deployed_by[:120],
        "warnings": msgspec.json.encode(version.warnings).decode(),
        "own_settings": None if (own := version.own_settings) is None else msgspec.json.encode(own).decode(),
    }
    tx.execute(insert(versions).values(row))


def remove(tx: Transaction, project: str, version: str) -> bool:
    gone = delete(versions).where(versions.c.project == project, versions.c.version == version)
    return tx.execute(gone).rowcount == 1


def live_run(tx: Transaction, project: str | None, digest: str) -> int | None:
    """A run of the project, or of any, that has not ended and is pinned to this code; None where there is none."""
    live = or_(
        runs.c.ready_lane.is_not(None),
        runs.c.lease_worker.is_not(None),
        runs.c.not_before.is_not(None),
        runs.c.trouble == "paused",
    )
    pinned = runs.c.spec.like(f'%"digest":"{digest}"%')
    mine = [] if project is None else [runs.c.project == project]
    found = tx.value(select(runs.c.id).where(live, *mine, pinned).limit(1))
    return None if found is None else int(found)


def is_used(tx: Transaction, digest: str) -> bool:
    """Whether any version has this code."""
    return tx.value(select(versions.c.project).where(versions.c.digest == digest).limit(1)) is not None


def pinned(tx: Transaction, wanted: Collection[tuple[str, str]]) -> Sequence[Any]:
    """Project, version and code of these versions, which nobody can delete before the transaction ends."""
    which = tuple_(versions.c.project, versions.c.version).in_(list(wanted))
    query = select(versions.c.project, versions.c.version, versions.c.code).where(which)
    return tx.rows(query.with_for_update(read=True, key_share=True))


def currents(tx: Transaction, names: Collection[str]) -> dict[str, str]:
    """The current version of each of these projects that has one."""
    query = select(projects.c.name, projects.c.current_version)
    rows = tx.rows(query.where(projects.c.name.in_(sorted(names)), projects.c.current_version.is_not(None)))
    return {row.name: row.current_version for row in rows}


def trusts(tx: Transaction, names: Collection[str] | None = None) -> dict[str, ProjectTrust]:
    """What each of these projects, or of all, is trusted with, where that was said."""
    query = select(projects)
    rows = tx.rows(query if names is None else query.where(projects.c.name.in_(sorted(names))))
    return {row.name: _trust(row) for row in rows}


def _trust(row: Any) -> ProjectTrust:
    return ProjectTrust(
        min_isolation=row.min_isolation,
        may_run_unsandboxed=bool(row.may_run_unsandboxed),
        may_build=bool(row.may_build),
        spider_env=_variables(row.spider_env),
        grace_seconds=row.grace_seconds,
        ports=None if row.network is None else ports_of(msgspec.json.decode(row.network, type=Network)),
    )


def deployed_since(tx: Transaction, at: Moment) -> list[tuple[str, Code]]:
    """Project and code of every version that somebody has deployed after ``at``; what weft brings itself can wait."""
    ours = versions.c.deployed_by == BY_WEFT
    rows = tx.rows(select(versions.c.project, versions.c.code).where(versions.c.deployed_at > at, ~ours))
    return [(row.project, msgspec.json.decode(row.code, type=Code)) for row in rows]


def _variables(kept: str | None) -> tuple[str, ...]:
    return () if kept is None else msgspec.json.decode(kept, type=tuple[str, ...])


def current_spiders(tx: Transaction, within: Collection[str] | None = None) -> dict[str, tuple[Spider, ...]]:
    """The spiders of every project's current version, or of those of some projects."""
    same = (projects.c.name == versions.c.project) & (projects.c.current_version == versions.c.version)
    query = select(versions.c.project, versions.c.spiders).join(projects, same)
    rows = tx.rows(query if within is None else query.where(projects.c.name.in_(sorted(within))))
    return {row.project: msgspec.json.decode(row.spiders, type=tuple[Spider, ...]) for row in rows}


_decode_warnings = msgspec.json.Decoder(tuple[SourceWarning, ...]).decode


def _version(row: Any, now: str | None) -> Version:
    return Version(
        project=row.project,
        version=row.version,
        digest=row.digest,
        size=row.size,
        format=row.format,
        code=msgspec.json.decode(row.code, type=Code),
        spiders=msgspec.json.decode(row.spiders, type=tuple[Spider, ...]),
        is_current=row.version == now,
        deployed_at=row.deployed_at,
        deployed_by=row.deployed_by,
        warnings=() if row.warnings is None else _decode_warnings(row.warnings),
        own_settings=None if row.own_settings is None else msgspec.json.decode(row.own_settings),
    )
