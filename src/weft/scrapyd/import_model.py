"""What an import finds in the folders of a Scrapyd, and what it tells of it. Values only, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from weft.clock import Moment

IMPORTED = "imported from Scrapyd"
"""How the reason of each run that was imported begins."""
ORIGIN = "scrapyd"
"""What ``imported`` says in the result of such a run."""


class Kind(StrEnum):
    """What a Scrapyd keeps."""

    EGG = "eggs"
    FINISHED = "finished jobs"
    LOG = "logs"
    ITEMS = "items"
    PENDING = "pending jobs"


class Fate(StrEnum):
    """What became of one thing."""

    TAKEN = "taken"
    KNOWN = "known"
    """It was there already, from an earlier import."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Refused:
    """One thing that was left out, by the name of its file, and why."""

    kind: Kind
    name: str
    why: str
    traceback: str = ""


@dataclass(slots=True)
class Report:
    """What an import has done so far."""

    counts: Counter[tuple[Kind, Fate]] = field(default_factory=Counter)
    refused: list[Refused] = field(default_factory=list)
    items: int = 0
    """Items that were stored now."""
    bad_items: int = 0
    """Lines among them that are no item."""
    notes: list[str] = field(default_factory=list)
    too_old: Counter[str] = field(default_factory=Counter)
    """Jobs of each project whose logs and items it would not keep."""
    told: Callable[[str], None] | None = None
    """Who is told how far it has come."""

    def tell(self, text: str) -> None:
        if self.told is not None:
            self.told(text)

    def count(self, kind: Kind, fate: Fate, count: int = 1) -> None:
        self.counts[kind, fate] += count

    def refuse(self, kind: Kind, name: str, why: object, traceback: str = "") -> None:
        self.counts[kind, Fate.REFUSED] += 1
        self.refused.append(Refused(kind, name, " ".join(str(why).split()), traceback))

    @property
    def is_whole(self) -> bool:
        return not self.refused and not self.bad_items


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job in the queue of a project."""

    row: int
    project: str
    spider: str
    job: str
    priority: float
    version: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)


JobKey = tuple[str, str, str]
"""Project, spider and job: what Scrapyd names the files of a job after."""


@dataclass(slots=True, kw_only=True)
class Finished:
    """A job that has ended, from all that tells of it."""

    key: JobKey
    has_log: bool = False
    has_items: bool = False
    started_at: Moment | None = None
    ended_at: Moment | None = None
    """Both as Scrapyd has stored them."""
    changed_at: Moment = 0
    """When its newest file was last written to."""

    @property
    def seen_at(self) -> Moment:
        """When it ended, as far as that is known without reading its log."""
        return self.ended_at or self.changed_at


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """What a log tells of its job."""

    size: int = 0
    changed_at: Moment = 0
    started_at: Moment | None = None
    ended_at: Moment | None = None
    finish_reason: str | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    """Scrapy's own, by its names."""
