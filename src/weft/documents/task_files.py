"""Tasks and project settings as the content of a file that ``weft tasks apply`` reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.clock import as_datetime
from weft.tasks.changes import Wanted, fields_of
from weft.tasks.model import Task

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def file_content(wanted: Wanted) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if wanted.projects:
        content["projects"] = {name: msgspec.to_builtins(each) for name, each in wanted.projects.items()}
    return content | {"tasks": [task_content(task) for task in wanted.tasks]}


def task_content(task: Task) -> dict[str, Any]:
    """All of a task that is not at its default."""
    fields: dict[str, Any] = {"name": task.name, "project": task.project} | fields_of(task)
    schedule = fields.get("schedule")
    if schedule is not None and "once_at" in schedule:
        schedule["when"] = as_datetime(schedule.pop("once_at")).isoformat()
    if schedule is not None and "start_at" in schedule:
        schedule["start_at"] = as_datetime(schedule["start_at"]).isoformat()
    return fields


def yaml_text(content: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=100)
    return text


def toml_text(content: Mapping[str, Any]) -> str | None:
    """The content as TOML; None where it has a null, which TOML cannot say."""
    try:
        return "\n".join(_tables(content))
    except _NoToml:
        return None


def _tables(content: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, settings in content.get("projects", {}).items():
        lines += [f"[projects.{_key(name)}]", *_pairs(settings), ""]
    for task in content.get("tasks", []):
        lines += ["[[tasks]]", *_pairs(task), ""]
    return lines


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if value is None:
        raise _NoToml
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return repr(value)


def _text(value: str) -> str:
    """A text as TOML quotes it: as JSON does, and with no control letter bare."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


class _NoToml(Exception):
    """There is a null in it."""
