"""Tasks and project settings as the content of a file that ``weft tasks apply`` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.clock import as_datetime

if TYPE_CHECKING:
    from weft.tasks.changes import Wanted
    from weft.tasks.model import Task


def file_content(wanted: Wanted) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if wanted.projects:
        content["projects"] = {name: msgspec.to_builtins(each) for name, each in wanted.projects.items()}
    return content | {"tasks": [_task(task) for task in wanted.tasks]}


def yaml_text(content: dict[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    return text


def _task(task: Task) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": task.name, "project": task.project} | msgspec.to_builtins(task)
    schedule = fields.get("schedule")
    if schedule is not None and "once_at" in schedule:
        schedule["when"] = as_datetime(schedule.pop("once_at")).isoformat()
    return fields
