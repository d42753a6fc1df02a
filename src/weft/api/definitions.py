"""Definitions of tasks and settings of projects as requests send them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from weft.access.model import Role
from weft.api.call import Call
from weft.errors import Invalid
from weft.runs.model import Retry
from weft.tasks import taskfile
from weft.tasks.changes import Change, Wanted
from weft.tasks.model import After, Dedup, ProjectSettings, Task
from weft.tasks.schedule import Misfire, Overlap, Schedule


class ScheduleBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One of ``when``, ``cron``, ``every_seconds`` and ``once_at``, and how to keep to it."""

    when: str | UnsetType = UNSET
    """Five cron fields, @daily, @every 1h30m or a date."""
    cron: str | UnsetType | None = UNSET
    every_seconds: float | UnsetType | None = UNSET
    once_at: str | UnsetType | None = UNSET
    """A date in ISO 8601."""
    start_at: str | UnsetType | None = UNSET
    zone: str | UnsetType = UNSET
    jitter_seconds: float | UnsetType = UNSET
    misfire: Misfire | UnsetType = UNSET
    catch_up_seconds: float | UnsetType = UNSET
    catch_up_cap: int | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET


class TaskBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A task as somebody wants it. What is left out has its default."""

    kind: str
    name: str | UnsetType = UNSET
    """In an address it is named already."""
    project: str | UnsetType = UNSET
    spec: dict[str, Any] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    schedule: str | ScheduleBody | UnsetType | None = UNSET
    """A text such as @daily, or a table."""
    after: list[str | After] | UnsetType = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    labels: tuple[str, ...] | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    timeout_seconds: float | UnsetType = UNSET
    grace_seconds: float | UnsetType = UNSET
    retry: Retry | UnsetType = UNSET
    max_running: int | UnsetType | None = UNSET
    dedup: Dedup | UnsetType | None = UNSET
    log_bytes: int | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    id: Any = UNSET
    """Set by weft and not read, as all that follows."""
    revision: Any = UNSET
    missed: Any = UNSET
    updated_at: Any = UNSET
    next_fire_at: Any = UNSET
    starts: Any = UNSET
    next: Any = UNSET
    last_run: Any = UNSET


class ApplyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks and settings of projects, as a task file has them."""

    tasks: list[TaskBody] = []
    projects: dict[str, ProjectSettings] = {}


SET_BY_WEFT = frozenset({"id", "revision", "missed", "updated_at", "next_fire_at", "starts", "next", "last_run"})


def task_of(body: TaskBody, project: str, name: str) -> Task:
    """The task of a body whose address names it; the body may name it again, but no other."""
    for what, wanted, given in (("project", project, body.project), ("name", name, body.name)):
        if given not in (UNSET, wanted):
            raise Invalid(what, given, f"the address says {wanted!r}; leave it out")
    return taskfile.task(_fields(body) | {"project": project, "name": name}, "the task")


def schedule_of(given: str | ScheduleBody) -> Schedule:
    return Schedule.parse(given if isinstance(given, str) else _told(msgspec.to_builtins(given)))


def wanted_of(body: ApplyBody) -> Wanted:
    if not body.tasks and not body.projects:
        raise Invalid("body", "empty", "there must be a task or a project")
    content = {"tasks": [_fields(each) for each in body.tasks], "projects": msgspec.to_builtins(body.projects)}
    return taskfile.parse(content, "the request")


def _fields(body: TaskBody) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(body)
    schedule = fields.get("schedule")
    if isinstance(schedule, dict):
        fields["schedule"] = _told(schedule)
    return {name: value for name, value in fields.items() if name not in SET_BY_WEFT}


def _told(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """A document names every kind of schedule; those that it has not are null."""
    return {name: value for name, value in schedule.items() if value is not None}


def check_wanted(call: Call, tasks: Iterable[Task], projects: Collection[str] = ()) -> None:
    """Refuse where the caller may not change these tasks, or may not see what they come after."""
    tasks = list(tasks)
    for project in sorted({*projects, *(task.project for task in tasks)}):
        call.check(project)
    for task in tasks:
        for forerunner in task.after:
            project, slash, _ = forerunner.task.rpartition("/")
            if slash:
                call.caller.check(Role.VIEWER, project, f"task {forerunner.task}")


def check_changes(call: Call, changes: Sequence[Change]) -> None:
    """Refuse to change a project's settings for one who is not its admin."""
    for project in {change.project for change in changes if change.what == "settings"}:
        call.check(project, role=Role.ADMIN)
