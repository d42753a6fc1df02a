"""Versions of projects' code as JSON."""

from __future__ import annotations

import msgspec

from weft.clock import iso
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
    is_current: bool
    """Whether runs execute it unless they say otherwise."""
    deployed_at: str | None
    deployed_by: str


def spider_document(spider: Spider) -> SpiderDocument:
    arguments = [
        ArgumentDocument(name=each.name, default=each.default, annotation=each.annotation, doc=each.doc)
        for each in spider.arguments
    ]
    return SpiderDocument(name=spider.name, doc=spider.doc, arguments=arguments, takes_more=spider.takes_more)


def version_document(version: Version) -> VersionDocument:
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
        spiders=[spider_document(each) for each in version.spiders],
        is_current=version.is_current,
        deployed_at=iso(version.deployed_at),
        deployed_by=version.deployed_by,
    )
