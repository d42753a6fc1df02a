"""What is to change: the difference between the tasks that a file wants and those that are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import msgspec

from weft.runs.lanes import project_limit, tag_limit
from weft.tasks.model import ProjectSettings, Task
from weft.tasks.store import Stored

TAG = "tags."
OF_ROW = ("max_queued", "keep_days", "min_isolation")
"""Settings that the row of a project has; without a row there are none of them."""
"""What stands before a tag's name in the fields of a change of settings."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Tasks and project settings as somebody wants them to be."""

    tasks: tuple[Task, ...] = ()
    projects: Mapping[str, ProjectSettings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that apply does. ``fields`` has what it was and what it becomes."""

    what: Literal["create", "change", "delete", "settings"]
    project: str
    name: str = ""
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    task: Task | None = None
    stored: Stored | None = None


def compare(
    wanted: Wanted,
    present: Mapping[tuple[str, str], Stored],
    projects: Mapping[str, Any],
    limits: Mapping[str, int],
    *,
    prune: bool = False,
) -> list[Change]:
    """Every change that leads from what is there to what is wanted, in the order of the file."""
    changes = [
        change
        for name, settings in wanted.projects.items()
        if (change := _project_change(name, settings, projects, limits)) is not None
    ]
    named = set()
    for task in wanted.tasks:
        named.add((task.project, task.name))
        stored = present.get((task.project, task.name))
        if stored is None:
            fields = {name: (None, value) for name, value in fields_of(task).items()}
            changes.append(Change(what="create", project=task.project, name=task.name, fields=fields, task=task))
        elif different := _different(fields_of(stored.task), fields_of(task)):
            changes.append(
                Change(what="change", project=task.project, name=task.name, fields=different, task=task, stored=stored)
            )
    if prune:
        of_projects = {project for project, _ in named} | set(wanted.projects)
        changes += [
            Change(what="delete", project=project, name=name, stored=stored)
            for (project, name), stored in present.items()
            if project in of_projects and (project, name) not in named
        ]
    return changes


def _project_change(
    name: str, settings: ProjectSettings, projects: Mapping[str, Any], limits: Mapping[str, int]
) -> Change | None:
    row = projects.get(name)
    mark = tag_limit(name, "")
    old = {
        "weight": row.weight if row is not None else 1.0,
        **{name: getattr(row, name, None) for name in OF_ROW},
        "max_running": limits.get(project_limit(name)),
        **{TAG + key.removeprefix(mark): most for key, most in limits.items() if key.startswith(mark)},
    }
    new = {
        "weight": settings.weight,
        **{name: getattr(settings, name) for name in OF_ROW},
        "max_running": settings.max_running,
        **{TAG + tag: most for tag, most in settings.tags.items()},
    }
    different = _different(old, new)
    return Change(what="settings", project=name, fields=different) if different else None


def fields_of(task: Task) -> dict[str, Any]:
    """The fields that are not at their defaults, as the database keeps them."""
    kept: dict[str, Any] = _plain(task)
    return {name: value for name, value in kept.items() if name not in ("name", "project")}


def _plain(value: Any) -> Any:
    """A default that was written down is a default all the same, also 0.0 for 0."""
    if isinstance(value, msgspec.Struct):
        defaults = _defaults(type(value))
        named = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: _plain(each) for name, each in named if name not in defaults or each != defaults[name]}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    found = {}
    for each in msgspec.structs.fields(kind):
        if each.default is not msgspec.NODEFAULT:
            found[each.name] = each.default
        elif each.default_factory is not msgspec.NODEFAULT:
            found[each.name] = each.default_factory()
    return found


def _different(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


def settings_of(name: str, row: Any, limits: Mapping[str, int]) -> ProjectSettings:
    """The settings of a project, from its row, if it has one, and the limits that are kept elsewhere."""
    mark = tag_limit(name, "")
    return ProjectSettings(
        weight=row.weight if row is not None else 1.0,
        **{name: getattr(row, name, None) for name in OF_ROW},
        max_running=limits.get(project_limit(name)),
        tags={key.removeprefix(mark): most for key, most in limits.items() if key.startswith(mark)},
    )
