"""What Scrapyd's clients call a job: a run of a spider under their own name. Values only, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
