"""The values of projects' code: versions, spiders and arguments, the order and the differences of versions.

Versions are ordered by name: numbers count as numbers, words as words, and a pre-release is known by its word. Names
that say nothing about their order, such as those of commits, are in alphabetical order. Values only, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from weft.clock import Moment

CODED_KINDS = frozenset({"spider"})
"""Kinds of tasks whose runs execute a project's deployed code."""
SANDBOXED_KINDS = CODED_KINDS | {"shell"}
"""Kinds of tasks whose runs execute what a developer of the project has written."""


class ProjectTrust(NamedTuple):
    """What the admins have said of a project's code."""

    min_isolation: str | None = None
    """The least level of isolation; None: any that the machine gives."""
    may_run_unsandboxed: bool = False
    """Whether its runs may ask for no sandbox at all."""
    may_build: bool = False
    """Whether packages may be built for it, which executes code of theirs."""
    spider_env: tuple[str, ...] = ()
    """The variables of a worker's environment that its runs see, besides those that the worker is set up with."""
    grace_seconds: float | None = None
    """How long a stopped run of it may take to end, where its task does not say."""
    ports: tuple[int, ...] | None = None
    """The only TCP ports that its code may connect to; None: all of the network, empty: none of it."""


NO_TRUST = ProjectTrust()


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
    may_build: bool = False
    """Whether what it needs may be built from source."""
    min_isolation: str = ""
    """The isolation without which nothing of it is installed, imported or run; empty: what the machine has will do."""
    grace_seconds: float | None = None
    """How long a stopped run of it may take to close, where its own settings say so."""


class FreshCode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Code that was deployed just now, and what its runs will see."""

    code: Code
    spider_env: tuple[str, ...] = ()
    """The variables that its project names."""
    ports: tuple[int, ...] | None = None
    """The only TCP ports that its project lets them connect to."""


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


class SourceWarning(msgspec.Struct, frozen=True):
    """What stands out in the source of a version, because it will not work here as its author may think."""

    code: str
    """``start_requests``, ``outside_folder`` or ``environment``."""
    file: str
    line: int
    name: str
    """Of the class, the path or the variable that it is about."""

    @property
    def sentence(self) -> str:
        if self.code == "start_requests":
            return f"{self.name} defines start_requests(), which Scrapy no longer calls; weft calls it, define start()"
        if self.code == "outside_folder":
            return f"it writes to {self.name}, but a run may write only into its own folder; yield items instead"
        if self.name.startswith("WEFT_"):
            return f"it reads {self.name} from the environment, which is weft's own and reaches no run"
        return f"it reads {self.name} from the environment, which does not reach runs unless spider_env names it"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.sentence}"


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
    warnings: tuple[SourceWarning, ...] = ()
    """What a look at its source has found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """How much one archive of code may be."""

    archive_bytes: int = 200_000_000
    entries: int = 20_000
    inflated_bytes: int = 1_000_000_000
    ratio: int = 100
    twins: bool = False
    """Whether names may differ in nothing but case, or in how an accent is written; some disks take them for one."""


def code_key(digest: str) -> str:
    """The key of the blob that holds an archive."""
    return f"code/{digest}"


PRERELEASES = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3, "pre": 3, "preview": 3}
"""Words that come before the release that they are part of."""
VERSION_PARTS = re.compile(r"[0-9]+|[A-Za-z]+")
COMMIT_HASH = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{7,64}", re.ASCII)
GIT_DESCRIBE = re.compile(r"(?P<tag>.+)-(?P<count>[0-9]+)-g[0-9a-f]{4,40}(?P<rest>-.*)?", re.ASCII)
"""What git calls a commit after a tag: after that version, before the next."""

VersionPart = tuple[int, int, str]
END_OF_VERSION: VersionPart = (1, 0, "")


def version_key(version: str) -> tuple[tuple[VersionPart, ...], str]:
    """What versions are sorted by. No two have the same."""
    if COMMIT_HASH.fullmatch(version):
        return ((2, 0, version), END_OF_VERSION), version
    if found := GIT_DESCRIBE.fullmatch(version):
        return (
            *_version_parts(found["tag"]),
            (2, int(found["count"]), ""),
            *_version_parts(found["rest"] or ""),
            END_OF_VERSION,
        ), version
    return (*_version_parts(version), END_OF_VERSION), version


def _version_parts(version: str) -> list[VersionPart]:
    return [_version_part(text) for text in VERSION_PARTS.findall(_without_commit(version))]


def _without_commit(version: str) -> str:
    return version[1:] if version[:1] in "vV" and version[1:2].isdigit() else version


def _version_part(text: str) -> VersionPart:
    if text.isdigit():
        return (3, int(text), "")
    word = text.lower()
    return (0, PRERELEASES[word], "") if word in PRERELEASES else (2, 0, word)


COMPARED_FIELDS = ("format", "settings", "root", "requirements", "lock")
"""Of the code as a whole; the digest tells whether it differs at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """One thing that is otherwise; None where it is not there."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SpiderChange:
    """A spider that both versions have, with its arguments that differ."""

    name: str
    changes: tuple[VersionChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    before: Version
    after: Version
    added: tuple[str, ...]
    """Spiders that only the later version has."""
    removed: tuple[str, ...]
    changed: tuple[SpiderChange, ...]
    settings: tuple[VersionChange, ...] | None
    """None where those of one of them were not kept."""
    facts: tuple[VersionChange, ...]

    @property
    def same_code(self) -> bool:
        return self.before.digest == self.after.digest


def version_diff(before: Version, after: Version) -> VersionDiff:
    old, new = _by_name(before.spiders), _by_name(after.spiders)
    kept = before.own_settings, after.own_settings
    return VersionDiff(
        before=before,
        after=after,
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=_changed_spiders(old, new),
        settings=None if kept[0] is None or kept[1] is None else _field_changes(kept[0], kept[1]),
        facts=_field_changes(_compared_fields(before), _compared_fields(after)),
    )


def _by_name(spiders: Sequence[Spider]) -> dict[str, Spider]:
    return {each.name: each for each in spiders}


def _changed_spiders(old: Mapping[str, Spider], new: Mapping[str, Spider]) -> tuple[SpiderChange, ...]:
    both = sorted(old.keys() & new.keys())
    found = (SpiderChange(name=name, changes=_spider_change(old[name], new[name])) for name in both)
    return tuple(each for each in found if each.changes)


def _spider_change(old: Spider, new: Spider) -> tuple[VersionChange, ...]:
    arguments = _field_changes(_arguments(old), _arguments(new))
    others = {"doc": (old.doc, new.doc), "takes_more": (old.takes_more, new.takes_more)}
    return (*arguments, *(VersionChange(name=name, before=a, after=b) for name, (a, b) in others.items() if a != b))


def _arguments(spider: Spider) -> dict[str, str]:
    return {f"{each.name}": argument_text(each) for each in spider.arguments}


def argument_text(argument: Argument) -> str:
    """An argument as it stands in the code: ``country: str = 'de'``."""
    kind = f": {argument.annotation}" if argument.annotation else ""
    if argument.default is None:
        return argument.name + kind
    return f"{argument.name}{kind} = {argument.default}" if kind else f"{argument.name}={argument.default}"


def _compared_fields(version: Version) -> dict[str, Any]:
    code = msgspec.structs.asdict(version.code)
    return {"format": version.format} | {name: code[name] for name in COMPARED_FIELDS if name in code}


def _field_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[VersionChange, ...]:
    names = sorted(old.keys() | new.keys())
    found = (VersionChange(name=name, before=old.get(name), after=new.get(name)) for name in names)
    return tuple(each for each in found if each.before != each.after)
