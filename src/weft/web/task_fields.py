"""A task as the fields of a form, and back. What the form has no field for stays as it was."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weft.web.pages.schedules import written

OTHER = "task"
"""The field of what is wrong with no field of the form."""
BESIDE = (
    ("zone", "zone"),
    ("cron", "when"),
    ("interval", "when"),
    ("schedule", "when"),
    ("date", "when"),
    ("once_at", "when"),
    ("retry", "retry_count"),
    ("after", "after"),
    ("parameter", "params"),
    ("params", "params"),
    ("placeholder", "params"),
    ("tag", "tags"),
    ("label", "labels"),
    ("timeout_seconds", "timeout_seconds"),
    ("max_running", "max_running"),
    ("priority", "priority"),
    ("script", "command"),
    ("argv", "command"),
    ("shell", "command"),
    ("url", "url"),
    ("http", "url"),
    ("spider", "spider"),
    ("project", "project"),
    ("name", "name"),
)
"""The field of the form beside which something is told, by a word in the name of what is wrong."""
NUMBERS = ("retry_count", "retry_delay_seconds", "timeout_seconds", "max_running", "priority")


class Wrong(Exception):
    """What was typed into one field cannot be read."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


def typed_of(task: Mapping[str, Any]) -> dict[str, str]:
    """The fields of the form for a task that is there, as the API shows it."""
    spec, schedule, retry = task["spec"], task["schedule"], task["retry"]
    fields = {name: str(task[name] or "") for name in ("description", "max_running", "priority")}
    fields |= {"name": task["name"], "project": task["project"], "kind": task["kind"]}
    fields |= {"tags": ", ".join(task["tags"]), "labels": ", ".join(task["labels"])}
    fields |= {"timeout_seconds": f"{task['timeout_seconds']:.15g}" if task["timeout_seconds"] else ""}
    fields |= {"retry_count": str(retry["count"] or ""), "retry_delay_seconds": f"{retry['delay_seconds']:.15g}"}
    fields["after"] = "\n".join(_line(each) for each in task["after"])
    fields["params"] = _json(task["params"]) if task["params"] else ""
    fields["paused"] = "yes" if task["paused"] else ""
    fields["command"] = str(spec.get("script") or shlex.join(map(str, spec.get("argv") or ())))
    fields |= {"url": str(spec.get("url", "")), "spider": str(spec.get("spider", ""))}
    fields["args"] = _lines(spec.get("args"))
    return fields | _schedule_fields(schedule)


def _schedule_fields(schedule: Mapping[str, Any] | None) -> dict[str, str]:
    if schedule is None:
        return {"schedule": "none", "when": "", "zone": "UTC", "overlap": "skip", "misfire": "once"}
    kept = {name: str(schedule[name]) for name in ("zone", "overlap", "misfire")}
    if schedule["cron"] is not None:
        return kept | {"schedule": "cron", "when": str(schedule["cron"])}
    if schedule["every_seconds"] is not None:
        return kept | {"schedule": "every", "when": f"{schedule['every_seconds']:.10g}s"}
    return kept | {"schedule": "once", "when": str(schedule["once_at"])}


def task_of(typed: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that was typed; ``before`` is the one that there was, for all that the form has no field for."""
    body = {name: value for name, value in before.items() if name not in ("name", "project")}
    kind = typed.get("kind", "").strip()
    spec = dict(body.get("spec") or {}) if body.get("kind") == kind else {}
    body |= {"kind": kind, "description": typed.get("description", "").strip(), "spec": spec | _spec(kind, typed, spec)}
    body["spec"] = {name: value for name, value in body["spec"].items() if value is not None}
    body |= {name: re.split(r"[\s,]+", typed.get(name, "").strip()) for name in ("tags", "labels")}
    body |= {name: [each for each in body[name] if each] for name in ("tags", "labels")}
    numbers = {name: _number(name, typed.get(name, "")) for name in NUMBERS}
    body |= {"timeout_seconds": numbers["timeout_seconds"] or 0, "priority": numbers["priority"] or 0}
    body["max_running"] = numbers["max_running"]
    body["retry"] = dict(body.get("retry") or {}) | {"count": numbers["retry_count"] or 0}
    if numbers["retry_delay_seconds"] is not None:
        body["retry"]["delay_seconds"] = numbers["retry_delay_seconds"]
    body |= {"after": _after(typed.get("after", "")), "params": _params(typed.get("params", ""))}
    body |= {"paused": bool(typed.get("paused")), "schedule": _schedule(typed, body.get("schedule"))}
    return body


def _spec(kind: str, typed: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "shell":
        return _command(typed.get("command", ""), before)
    if kind == "http":
        return {"url": typed.get("url", "").strip()}
    if kind == "spider":
        args = before.get("args") or {}
        same = typed.get("args", "") == _lines(args)
        return {
            "spider": typed.get("spider", "").strip(),
            **({} if same else {"args": _args(typed.get("args", ""), args)}),
        }
    return {}


def _command(text: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """A script, unless it is the argv that was there."""
    if not text.strip():
        raise Wrong("command", "there must be a command")
    argv = before.get("argv")
    if argv and text.strip() == shlex.join(map(str, argv)).strip():
        return {}
    if argv and "\n" not in text.strip():
        try:
            return {"argv": shlex.split(text)}
        except ValueError as problem:
            raise Wrong("command", f"the command cannot be read: {problem}") from problem
    return {"argv": None, "script": text.strip("\n")}


def _lines(args: Mapping[str, Any] | None) -> str:
    return "\n".join(f"{name}={value}" for name, value in (args or {}).items())


def _args(text: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed; a value that is as it was stays what it was, also where it is no text."""
    found: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise Wrong("args", f"{line!r} must be name=value, one on each line")
        name = name.strip()
        found[name] = before[name] if name in before and str(before[name]).strip() == value.strip() else value
    return found


def _after(text: str) -> list[dict[str, str]]:
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        task, _, on = line.partition(" ")
        if on.strip() not in ("", "success", "failure", "any"):
            raise Wrong("after", f"{line!r} must be a task, and success, failure or any after it")
        found.append({"task": task, "on": on.strip() or "success"})
    return found


def _params(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as problem:
        raise Wrong("params", f"parameters must be a JSON object of names and defaults ({problem})") from problem


def _schedule(typed: Mapping[str, str], before: Any) -> dict[str, Any] | None:
    if typed.get("schedule", "none") == "none":
        return None
    when = written(typed)
    if not when:
        raise Wrong("when", "it must be five cron fields, a span such as 5m, or a date")
    kept = {name: value for name, value in (before or {}).items() if name not in ("cron", "every_seconds", "once_at")}
    kept = {name: value for name, value in kept.items() if value is not None and name != "start_at"}
    if typed["schedule"] == "every" and before and before.get("every_seconds") is not None and before.get("start_at"):
        kept["start_at"] = before["start_at"]
    told = {"zone": typed.get("zone", "").strip() or "UTC"}
    told |= {name: typed[name] for name in ("overlap", "misfire") if typed.get(name)}
    return kept | told | {"when": when}


def _number(name: str, text: str) -> float | int | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise Wrong(name, f"{text.strip()!r} is no number") from None
    if value != value or abs(value) == float("inf"):
        raise Wrong(name, f"{text.strip()!r} is no number")
    return int(value) if value.is_integer() else value


def _line(after: Mapping[str, str]) -> str:
    return after["task"] if after["on"] == "success" else f"{after['task']} {after['on']}"


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def beside(what: str, fields: Sequence[str]) -> str:
    """The field of the form that is meant by the name of what is wrong."""
    words = re.findall(r"\w+", what.rpartition("): ")[2].lower())
    found = (field for word, field in BESIDE if field in fields and (word in words or f"{word}s" in words))
    return next(found, OTHER)
