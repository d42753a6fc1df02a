"""Versions of projects' code as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.clock import iso
from weft.projects.changes import Change, Changes
from weft.projects.model import Spider, Version


class ArgumentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a spider."""

    name: str
    default: str | None
    """As it stands in the code; null where it must be given."""
    annotation: str
    doc: str


class SpiderDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A spider of a version."""

    name: str
    doc: str
    arguments: list[ArgumentDocument]
    takes_more: bool
    """Whether it takes arguments that are not listed."""


class VersionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A deployed version of a project's code."""

    project: str
    version: str
    digest: str
    """SHA-256 of the archive."""
    size: int
    format: str
    """egg, wheel, sdist or zip."""
    settings: str
    """The module of Scrapy's settings."""
    root: str
    """The folder inside the archive that modules are imported from."""
    requirements: str
    """The file inside the archive that names what it needs; empty: weft's own Scrapy is enough."""
    lock: str
    """SHA-256 of that file."""
    spiders: list[SpiderDocument]
    """Empty in a brief list."""
    spider_count: int
    is_current: bool
    """Whether runs execute it unless they say otherwise."""
    deployed_at: str | None
    deployed_by: str
    own_settings: dict[str, Any] | None
    """What its settings module says, secrets masked; null in a brief list, and where it was not kept."""


class ChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is otherwise in the later version; null where it is not there."""

    name: str
    before: Any
    after: Any


class SpiderChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A spider that both versions have, and what differs of it: its arguments by name, doc, takes_more."""

    name: str
    changes: list[ChangeDocument]


class ChangesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two versions."""

    project: str
    before: str
    after: str
    same_code: bool
    """Whether both have the same archive."""
    added: list[str]
    """Spiders that only the later version has."""
    removed: list[str]
    changed: list[SpiderChangeDocument]
    settings: list[ChangeDocument] | None
    """Settings of the project's own module; null where those of one of the two were not kept."""
    facts: list[ChangeDocument]
    """What differs of the code as a whole: format, settings (its module), root, requirements, lock."""


def spider_document(spider: Spider) -> SpiderDocument:
    arguments = [
        ArgumentDocument(name=each.name, default=each.default, annotation=each.annotation, doc=each.doc)
        for each in spider.arguments
    ]
    return SpiderDocument(name=spider.name, doc=spider.doc, arguments=arguments, takes_more=spider.takes_more)


def version_document(version: Version, *, brief: bool = False) -> VersionDocument:
    """A version with its spiders and settings, or without these."""
    own_settings = None if brief or version.own_settings is None else dict(version.own_settings)
    return VersionDocument(
        project=version.project,
        version=version.version,
        digest=version.digest,
        size=version.size,
        format=version.format,
        settings=version.code.settings,
        root=version.code.root,
        requirements=version.code.requirements,
        lock=version.code.lock,
        spiders=[] if brief else [spider_document(each) for each in version.spiders],
        spider_count=len(version.spiders),
        is_current=version.is_current,
        deployed_at=iso(version.deployed_at),
        deployed_by=version.deployed_by,
        own_settings=own_settings,
    )


def changes_document(found: Changes) -> ChangesDocument:
    return ChangesDocument(
        project=found.after.project,
        before=found.before.version,
        after=found.after.version,
        same_code=found.same_code,
        added=list(found.added),
        removed=list(found.removed),
        changed=[
            SpiderChangeDocument(name=each.name, changes=[_change(one) for one in each.changes])
            for each in found.changed
        ],
        settings=None if found.settings is None else [_change(each) for each in found.settings],
        facts=[_change(each) for each in found.facts],
    )


def _change(change: Change) -> ChangeDocument:
    return ChangeDocument(name=change.name, before=change.before, after=change.after)
