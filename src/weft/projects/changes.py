"""What differs between two versions of a project's code, as far as the check of a deploy tells. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.projects.model import Argument, Spider, Version

FACTS = ("format", "settings", "root", "requirements", "lock")
"""Of the code as a whole; the digest tells whether it differs at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is otherwise; None where it is not there."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SpiderChange:
    """A spider that both versions have, with its arguments that differ."""

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    before: Version
    after: Version
    added: tuple[str, ...]
    """Spiders that only the later version has."""
    removed: tuple[str, ...]
    changed: tuple[SpiderChange, ...]
    settings: tuple[Change, ...] | None
    """None where those of one of them were not kept."""
    facts: tuple[Change, ...]

    @property
    def same_code(self) -> bool:
        return self.before.digest == self.after.digest


def changes(before: Version, after: Version) -> Changes:
    old, new = _by_name(before.spiders), _by_name(after.spiders)
    kept = before.own_settings, after.own_settings
    return Changes(
        before=before,
        after=after,
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=_changed(old, new),
        settings=None if kept[0] is None or kept[1] is None else _different(kept[0], kept[1]),
        facts=_different(_facts(before), _facts(after)),
    )


def _by_name(spiders: Sequence[Spider]) -> dict[str, Spider]:
    return {each.name: each for each in spiders}


def _changed(old: Mapping[str, Spider], new: Mapping[str, Spider]) -> tuple[SpiderChange, ...]:
    both = sorted(old.keys() & new.keys())
    found = (SpiderChange(name=name, changes=_of_spider(old[name], new[name])) for name in both)
    return tuple(each for each in found if each.changes)


def _of_spider(old: Spider, new: Spider) -> tuple[Change, ...]:
    arguments = _different(_arguments(old), _arguments(new))
    others = {"doc": (old.doc, new.doc), "takes_more": (old.takes_more, new.takes_more)}
    return (*arguments, *(Change(name=name, before=a, after=b) for name, (a, b) in others.items() if a != b))


def _arguments(spider: Spider) -> dict[str, str]:
    return {f"{each.name}": written(each) for each in spider.arguments}


def written(argument: Argument) -> str:
    """An argument as it stands in the code: ``country: str = 'de'``."""
    kind = f": {argument.annotation}" if argument.annotation else ""
    if argument.default is None:
        return argument.name + kind
    return f"{argument.name}{kind} = {argument.default}" if kind else f"{argument.name}={argument.default}"


def _facts(version: Version) -> dict[str, Any]:
    code = msgspec.structs.asdict(version.code)
    return {"format": version.format} | {name: code[name] for name in FACTS if name in code}


def _different(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    names = sorted(old.keys() | new.keys())
    found = (Change(name=name, before=old.get(name), after=new.get(name)) for name in names)
    return tuple(each for each in found if each.before != each.after)
