"""What a project's code is, as others need to know it. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.clock import Moment

CODED_KINDS = frozenset({"spider"})
"""Kinds of tasks whose runs execute a project's deployed code."""


class Code(msgspec.Struct, frozen=True, omit_defaults=True):
    """One deployed version, as a run that is pinned to it carries it."""

    version: str
    digest: str
    """SHA-256 of the archive, whose blob is ``code/<digest>``."""
    settings: str
    """The module of Scrapy's settings, such as ``shop.settings``."""
    root: str = ""
    """The folder inside the archive that modules are imported from."""
    requirements: str = ""
    """The file inside the archive that says what it needs; empty: weft's own Scrapy is enough."""
    lock: str = ""
    """SHA-256 of that file: versions with the same one share an environment."""


class Argument(msgspec.Struct, frozen=True, omit_defaults=True):
    """One argument of a spider's constructor."""

    name: str
    default: str | None = None
    """As it stands in the code; None where it must be given."""
    annotation: str = ""
    doc: str = ""


class Spider(msgspec.Struct, frozen=True, omit_defaults=True):
    """A spider of a version."""

    name: str
    doc: str = ""
    arguments: tuple[Argument, ...] = ()
    takes_more: bool = False
    """Whether it takes arguments that are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A deployed version as people and programs see it."""

    project: str
    version: str
    digest: str
    size: int
    format: str
    code: Code
    spiders: tuple[Spider, ...]
    is_current: bool
    deployed_at: Moment
    deployed_by: str
    own_settings: Mapping[str, Any] | None = None
    """What its settings module says, secrets masked; None where that was not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one archive of code may be."""

    archive_bytes: int = 200_000_000
    entries: int = 20_000
    inflated_bytes: int = 1_000_000_000
    ratio: int = 100


def code_key(digest: str) -> str:
    """The key of the blob that holds an archive."""
    return f"code/{digest}"
