"""Values of Scrapyd jobs and of an import; no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from weft.clock import Moment
from weft.errors import Invalid

LONGEST_ID = 200
PLAIN = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*")
OUTSIDE = re.compile(r"[^A-Za-z0-9_-]")


class JobState(StrEnum):
    """Of a run that was cancelled before it began there is no state: it is in no list."""

    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a spider as Scrapyd's clients see it. Values that are secret are masked."""

    id: str
    project: str
    spider: str
    state: JobState
    version: str | None = None
    """The one that was asked for; None: whichever was the newest."""
    settings: Mapping[str, str] = {}
    args: Mapping[str, str] = {}
    pid: int | None = None
    """Of the worker that sees it through, while it runs."""
    started_at: Moment | None = None
    ended_at: Moment | None = None
    run_id: int
    attempt: int
    has_items: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLists:
    """Every job that there is, in Scrapyd's three lists."""

    pending: list[Job]
    """Project by project, the highest priority first."""
    running: list[Job]
    finished: list[Job]
    """The newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job that somebody asks for."""

    id: str
    project: str
    spider: str
    version: str | None = None
    """As it was spelled; None: the newest."""
    priority: float = 0.0
    settings: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    """Who asks, such as ``key:ci``."""


def sanitised(version: str) -> str:
    """What Scrapyd calls a version: two that differ in other characters than these are the same one."""
    return OUTSIDE.sub("_", version)


def check_id(job: str) -> None:
    """Refuse what cannot be the name of a file beside others: a log and items are found under it."""
    if len(job) > LONGEST_ID or not PLAIN.fullmatch(job):
        allowed = f"it must be a plain name without slashes or a leading dot, at most {LONGEST_ID} characters"
        raise Invalid("jobid", job, allowed)


IMPORTED = "imported from Scrapyd"
"""How the reason of each run that was imported begins."""
ORIGIN = "scrapyd"
"""What ``imported`` says in the result of such a run."""


class ImportKind(StrEnum):
    """What a Scrapyd keeps."""

    EGG = "eggs"
    FINISHED = "finished jobs"
    LOG = "logs"
    ITEMS = "items"
    PENDING = "pending jobs"


class ImportOutcome(StrEnum):
    """What became of one thing."""

    TAKEN = "taken"
    KNOWN = "known"
    """It was there already, from an earlier import."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RefusedImport:
    """One thing that was left out, by the name of its file, and why."""

    kind: ImportKind
    name: str
    why: str
    traceback: str = ""


@dataclass(slots=True)
class ImportReport:
    """What an import has done so far."""

    counts: Counter[tuple[ImportKind, ImportOutcome]] = field(default_factory=Counter)
    refused: list[RefusedImport] = field(default_factory=list)
    items: int = 0
    """Items that were stored now."""
    bad_items: int = 0
    """Lines among them that are no item."""
    notes: list[str] = field(default_factory=list)
    too_old: Counter[str] = field(default_factory=Counter)
    """Jobs of each project whose logs and items it would not keep."""
    variables: dict[str, list[str]] = field(default_factory=dict)
    """What the newest egg of each project that was deployed reads from the environment, and does not get."""
    told: Callable[[str], None] | None = None
    """Who is told how far it has come."""

    def tell(self, text: str) -> None:
        if self.told is not None:
            self.told(text)

    def count(self, kind: ImportKind, fate: ImportOutcome, count: int = 1) -> None:
        self.counts[kind, fate] += count

    def refuse(self, kind: ImportKind, name: str, why: object, traceback: str = "") -> None:
        self.counts[kind, ImportOutcome.REFUSED] += 1
        self.refused.append(RefusedImport(kind, name, " ".join(str(why).split()), traceback))

    @property
    def is_whole(self) -> bool:
        return not self.refused and not self.bad_items


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
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
class FinishedJob:
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
class ParsedLog:
    """What a log tells of its job."""

    size: int = 0
    changed_at: Moment = 0
    started_at: Moment | None = None
    ended_at: Moment | None = None
    finish_reason: str | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    """Scrapy's own, by its names."""
