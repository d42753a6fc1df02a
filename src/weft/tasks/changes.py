"""The difference between the desired tasks and settings and those that there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import msgspec

from weft.runs.lanes import project_limit, tag_limit
from weft.runs.success import SpiderSettings, SuccessConditions
from weft.tasks.model import ProjectSettings, Task
from weft.tasks.store import StoredTask
from weft.user_code import Network, stricter, widens

TAG_PREFIX = "tags."
"""What stands before a tag's name in the fields of a change of settings."""
ROW_SETTINGS = ("max_queued", "keep_days", "min_isolation", "grace_seconds")
"""Settings that the row of a project has; without a row there are none of them."""
TRUST_SETTINGS = ("may_run_unsandboxed", "may_build")
"""What only an admin of all projects may allow: it is about what a project may do to others."""
JSON_SETTINGS: dict[str, tuple[Any, Any]] = {
    "success_if": (SuccessConditions | None, None),
    "spiders": (dict[str, SpiderSettings], {}),
    "spider_env": (tuple[str, ...], ()),
    "network": (Network, "all"),
}
"""Those that it has as JSON: what they are, and what they are without."""


def raises_trust(name: str, before: Any, after: Any) -> bool:
    """Whether a setting of a project, that changes so, is one by which only an admin of all may trust it with more."""
    if name == "spider_env":
        return bool(set(after or ()) - set(before or ()))
    if name == "network":
        return widens(before, after)
    if name == "min_isolation":
        return stricter(after) < stricter(before)
    return name in TRUST_SETTINGS and bool(after) and not before


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Tasks and project settings as somebody wants them to be."""

    tasks: tuple[Task, ...] = ()
    projects: Mapping[str, ProjectSettings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """One thing that apply does. ``fields`` has what it was and what it becomes."""

    what: Literal["create", "change", "delete", "settings"]
    project: str
    name: str = ""
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    task: Task | None = None
    stored: StoredTask | None = None


def compare(
    wanted: DesiredState,
    present: Mapping[tuple[str, str], StoredTask],
    projects: Mapping[str, Any],
    limits: Mapping[str, int],
    *,
    prune: bool = False,
) -> list[TaskChange]:
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
            changes.append(TaskChange(what="create", project=task.project, name=task.name, fields=fields, task=task))
        elif different := _changed_fields(fields_of(stored.task), fields_of(task)):
            changes.append(
                TaskChange(
                    what="change", project=task.project, name=task.name, fields=different, task=task, stored=stored
                )
            )
    if prune:
        of_projects = {project for project, _ in named} | set(wanted.projects)
        changes += [
            TaskChange(what="delete", project=project, name=name, stored=stored)
            for (project, name), stored in present.items()
            if project in of_projects and (project, name) not in named
        ]
    return changes


def _project_change(
    name: str, settings: ProjectSettings, projects: Mapping[str, Any], limits: Mapping[str, int]
) -> TaskChange | None:
    row = projects.get(name)
    mark = tag_limit(name, "")
    old = {
        "weight": row.weight if row is not None else 1.0,
        **{name: getattr(row, name, None) for name in ROW_SETTINGS},
        **{name: bool(getattr(row, name, False)) for name in TRUST_SETTINGS},
        **{name: _normalized(value) for name, value in _in_row(row).items()},
        "max_running": limits.get(project_limit(name)),
        **{TAG_PREFIX + key.removeprefix(mark): most for key, most in limits.items() if key.startswith(mark)},
    }
    new = {
        "weight": settings.weight,
        **{name: getattr(settings, name) for name in (*ROW_SETTINGS, *TRUST_SETTINGS)},
        **{name: _normalized(getattr(settings, name)) for name in JSON_SETTINGS},
        "max_running": settings.max_running,
        **{TAG_PREFIX + tag: most for tag, most in settings.tags.items()},
    }
    different = _changed_fields(old, new)
    return TaskChange(what="settings", project=name, fields=different) if different else None


def _in_row(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (kind, default) in JSON_SETTINGS.items():
        told = getattr(row, name, None)
        found[name] = default if told is None else msgspec.json.decode(told, type=kind)
    return found


def fields_of(task: Task) -> dict[str, Any]:
    """The fields that are not at their defaults, as the database keeps them."""
    kept: dict[str, Any] = _normalized(task)
    return {name: value for name, value in kept.items() if name not in ("name", "project")}


def _normalized(value: Any) -> Any:
    """A default that was written down is a default all the same, also 0.0 for 0."""
    if isinstance(value, msgspec.Struct):
        defaults = _defaults(type(value))
        named = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: _normalized(each) for name, each in named if name not in defaults or each != defaults[name]}
    if isinstance(value, list | tuple):
        return [_normalized(each) for each in value]
    if isinstance(value, dict) and any(isinstance(each, msgspec.Struct) for each in value.values()):
        return {name: _normalized(each) for name, each in value.items()}
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


def _changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


def settings_of(name: str, row: Any, limits: Mapping[str, int]) -> ProjectSettings:
    """The settings of a project, from its row, if it has one, and the limits that are kept elsewhere."""
    mark = tag_limit(name, "")
    of_row: dict[str, Any] = {name: getattr(row, name, None) for name in ROW_SETTINGS}
    of_row |= {name: bool(getattr(row, name, False)) for name in TRUST_SETTINGS}
    return ProjectSettings(
        weight=row.weight if row is not None else 1.0,
        **of_row | _in_row(row),
        max_running=limits.get(project_limit(name)),
        tags={key.removeprefix(mark): most for key, most in limits.items() if key.startswith(mark)},
    )
