"""Create, edit, import and export tasks."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.datastructures import UploadFile
from starlette.responses import Response

from weft import strict_json
from weft.errors import NOT_SHOWN, Invalid
from weft.operations import tasks
from weft.operations.tasks import ScheduleDocument, TaskDocument, UpstreamTaskDocument, toml_text, yaml_text
from weft.runs.success_text import condition_lines, parse_conditions
from weft.tasks import taskfile
from weft.web.forms import FIELD_STATUSES, field_errors, read_upload
from weft.web.pages.schedules import preview_of, schedule_text
from weft.web.pages.tasks import MISFIRE_TEXTS, OVERLAP_TEXTS, task_definition
from weft.web.rendering import Redirect, WebPage
from weft.web.visit import ApiError, Visit, may, projects_of

OTHER_FIELDS = "task"
"""The field of what is wrong with no field of the form."""
ERROR_FIELDS = (
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
    ("success_if", "success_if"),
    ("spider", "spider"),
    ("project", "project"),
    ("name", "name"),
)
"""The field of the form beside which something is told, by a word in the name of what is wrong."""
NUMBER_FIELDS = ("retry_count", "retry_delay_seconds", "timeout_seconds", "max_running", "priority")


class TaskFormError(Exception):
    """What was typed into one field cannot be read."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


def fields_of_task(task: TaskDocument) -> dict[str, str]:
    """The fields of the form for a task that is there, as the API shows it."""
    spec, retry = task.spec, task.retry
    fields = {"description": task.description, "max_running": str(task.max_running or "")}
    fields |= {"priority": str(task.priority or ""), "name": task.name, "project": task.project, "kind": task.kind}
    fields |= {"tags": ", ".join(task.tags), "labels": ", ".join(task.labels)}
    fields |= {"timeout_seconds": f"{task.timeout_seconds:.15g}" if task.timeout_seconds else ""}
    fields |= {"retry_count": str(retry.count or ""), "retry_delay_seconds": f"{retry.delay_seconds:.15g}"}
    fields["after"] = "\n".join(_one_line(each) for each in task.after)
    fields["params"] = _parse_json(task.params) if task.params else ""
    fields["paused"] = "yes" if task.paused else ""
    fields["success_if"] = "\n".join(condition_lines(task.success_if))
    fields["command"] = str(spec.get("script") or shlex.join(map(str, spec.get("argv") or ())))
    fields |= {"url": str(spec.get("url", "")), "spider": str(spec.get("spider", ""))}
    fields["args"] = _lines(spec.get("args"))
    return fields | _schedule_fields(task.schedule)


def _schedule_fields(schedule: ScheduleDocument | None) -> dict[str, str]:
    if schedule is None:
        return {"schedule": "none", "when": "", "zone": "UTC", "overlap": "skip", "misfire": "once"}
    kept = {"zone": schedule.zone, "overlap": schedule.overlap, "misfire": schedule.misfire}
    if schedule.cron is not None:
        return kept | {"schedule": "cron", "when": schedule.cron}
    if schedule.every_seconds is not None:
        return kept | {"schedule": "every", "when": f"{schedule.every_seconds:.10g}s"}
    return kept | {"schedule": "once", "when": schedule.once_at or ""}


def task_of(typed: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that was typed; ``before`` is the one that there was, for all that the form has no field for."""
    body = {name: value for name, value in before.items() if name not in ("name", "project")}
    kind = typed.get("kind", "").strip()
    spec = dict(body.get("spec") or {}) if body.get("kind") == kind else {}
    body |= {"kind": kind, "description": typed.get("description", "").strip(), "spec": spec | _spec(kind, typed, spec)}
    body["spec"] = {name: value for name, value in body["spec"].items() if value is not None}
    body |= {name: re.split(r"[\s,]+", typed.get(name, "").strip()) for name in ("tags", "labels")}
    body |= {name: [each for each in body[name] if each] for name in ("tags", "labels")}
    numbers = {name: _number(name, typed.get(name, "")) for name in NUMBER_FIELDS}
    body |= {"timeout_seconds": numbers["timeout_seconds"] or 0, "priority": numbers["priority"] or 0}
    body["max_running"] = numbers["max_running"]
    body["retry"] = dict(body.get("retry") or {}) | {"count": numbers["retry_count"] or 0}
    if numbers["retry_delay_seconds"] is not None:
        body["retry"]["delay_seconds"] = numbers["retry_delay_seconds"]
    body |= {"after": _after(typed.get("after", "")), "params": _params(typed.get("params", ""))}
    if kind == "spider":
        body["success_if"] = _conditions(typed.get("success_if", ""))
    else:
        body.pop("success_if", None)
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
        raise TaskFormError("command", "there must be a command")
    argv = before.get("argv")
    if argv and text.strip() == shlex.join(map(str, argv)).strip():
        return {}
    if argv and "\n" not in text.strip():
        try:
            return {"argv": shlex.split(text)}
        except ValueError as problem:
            raise TaskFormError("command", f"the command cannot be read: {problem}") from problem
    return {"argv": None, "script": text.strip("\n")}


def _lines(args: Mapping[str, Any] | None) -> str:
    return "\n".join(f"{name}={value}" for name, value in (args or {}).items())


def _args(text: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed; a value that is as it was stays what it was, also where it is no text."""
    found: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise TaskFormError("args", f"{line!r} must be name=value, one on each line")
        name = name.strip()
        found[name] = before[name] if name in before and str(before[name]).strip() == value.strip() else value
    return found


def _after(text: str) -> list[dict[str, str]]:
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        task, _, on = line.partition(" ")
        if on.strip() not in ("", "success", "failure", "any"):
            raise TaskFormError("after", f"{line!r} must be a task, and success, failure or any after it")
        found.append({"task": task, "on": on.strip() or "success"})
    return found


def _params(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        params: dict[str, Any] = strict_json.decode(text, dict[str, Any])
    except msgspec.MsgspecError as problem:
        raise TaskFormError(
            "params", f"parameters must be a JSON object of names and defaults ({problem})"
        ) from problem
    return params


def _schedule(typed: Mapping[str, str], before: Any) -> dict[str, Any] | None:
    if typed.get("schedule", "none") == "none":
        return None
    when = schedule_text(typed)
    if not when:
        raise TaskFormError("when", "it must be five cron fields, a span such as 5m, or a date")
    kept = {name: value for name, value in (before or {}).items() if name not in ("cron", "every_seconds", "once_at")}
    kept = {name: value for name, value in kept.items() if value is not None and name != "start_at"}
    if typed["schedule"] == "every" and before and before.get("every_seconds") is not None and before.get("start_at"):
        kept["start_at"] = before["start_at"]
    told = {"zone": typed.get("zone", "").strip() or "UTC"}
    told |= {name: typed[name] for name in ("overlap", "misfire") if typed.get(name)}
    return kept | told | {"when": when}


def _conditions(text: str) -> dict[str, Any] | None:
    try:
        found = parse_conditions(text.split("\n"))
    except Invalid as problem:
        raise TaskFormError("success_if", str(problem)) from problem
    return None if found is None else msgspec.to_builtins(found)


def _number(name: str, text: str) -> float | int | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise TaskFormError(name, f"{text.strip()!r} is no number") from None
    if value != value or abs(value) == float("inf"):
        raise TaskFormError(name, f"{text.strip()!r} is no number")
    return int(value) if value.is_integer() else value


def _one_line(after: UpstreamTaskDocument) -> str:
    return after.task if after.on == "success" else f"{after.task} {after.on}"


def _parse_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def error_field(what: str, fields: Sequence[str]) -> str:
    """The field of the form that is meant by the name of what is wrong."""
    words = re.findall(r"\w+", what.rpartition("): ")[2].lower())
    found = (field for word, field in ERROR_FIELDS if field in fields and (word in words or f"{word}s" in words))
    return next(found, OTHER_FIELDS)


KINDS = ("shell", "http", "spider")
NEW_TASK: Mapping[str, str] = {
    "kind": "shell",
    "schedule": "none",
    "zone": "UTC",
    "overlap": "skip",
    "misfire": "once",
    "project": "default",
    "retry_delay_seconds": "1",
}
TASK_TEMPLATE = {"kind": "shell", "spec": {"script": "echo hello"}, "schedule": "@daily"}


async def new_task(visit: Visit) -> WebPage:
    """An empty form; the address may fill some of it, such as the project."""
    if visit.query.get("as") == "json":
        return _text_page(visit, None, _json({"project": "default", "name": "", **TASK_TEMPLATE}))
    typed = {**NEW_TASK, **{name: value for name, value in visit.query.items() if name in _FIELDS}}
    return await _form(visit, None, typed)


async def create_task(visit: Visit) -> WebPage | Redirect:
    return await _save(visit, None)


async def edit_task(visit: Visit) -> WebPage:
    """The form with a task that is there."""
    task = await _task(visit)
    if visit.query.get("as") == "json":
        return _text_page(visit, task, _json(task_definition(msgspec.to_builtins(task))))
    return await _form(visit, task, fields_of_task(task))


async def save_task(visit: Visit) -> WebPage | Redirect:
    return await _save(visit, await _task(visit))


async def _task(visit: Visit) -> TaskDocument:
    return await visit.call(tasks.show, project=visit.path("project"), name=visit.path("name"))


async def _save(visit: Visit, task: TaskDocument | None) -> WebPage | Redirect:
    """Keep what was typed, or show it again with what is wrong beside its field."""
    is_text = "text" in visit.form
    if visit.form.get("act") == "preview" and not is_text:
        return await _form(visit, task, visit.form)
    try:
        before = {} if task is None else msgspec.to_builtins(task)
        body = _from_text(visit.form["text"]) if is_text else task_of(visit.form, before)
        project, name = _named(visit, task, body if is_text else visit.form)
        sent = {each: value for each, value in body.items() if each not in ("project", "name")}
        await visit.call(tasks.put, project=project, name=name, body=sent, sent=_version_seen(visit, task))
    except TaskFormError as wrong:
        errors = {wrong.field: str(wrong)}
    except ApiError as refusal:
        is_elsewhere = task is None and not may(visit.session, "developer", project)
        if refusal.problem.status not in FIELD_STATUSES and not (refusal.problem.status == 403 and is_elsewhere):
            raise
        field = "project" if is_elsewhere else error_field(refusal.problem.field or "", _FIELDS)
        why = refusal.problem.detail.rpartition(f"({name}): ")[2]
        errors = {"text" if is_text else field: why}
    else:
        word = "made" if task is None else "saved"
        return Redirect(f"/tasks/{quote(project, safe='')}/{quote(name, safe='')}?said={word}")
    if is_text:
        return _text_page(visit, task, visit.form["text"], errors)
    return await _form(visit, task, visit.form, errors)


def _named(visit: Visit, task: TaskDocument | None, told: Mapping[str, Any]) -> tuple[str, str]:
    if task is not None:
        return task.project, task.name
    project, name = (str(told.get(each) or "").strip() for each in ("project", "name"))
    for field, value in (("project", project), ("name", name)):
        if not value or "/" in value:
            why = "it must be letters, digits, '.', '_' or '-', starting with a letter or digit"
            raise TaskFormError("text" if "text" in visit.form else field, f"{field} is {value!r}; {why}")
    return project, name


def _version_seen(visit: Visit, task: TaskDocument | None) -> dict[str, str]:
    if task is None:
        return {"if-none-match": "*"}
    return {"if-match": f'"{visit.form.get("revision", "")}"'}


def _from_text(text: str) -> dict[str, Any]:
    try:
        task: dict[str, Any] = strict_json.decode(text, dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise TaskFormError("text", f"it is not a JSON object: {problem}") from problem
    return task


async def _form(
    visit: Visit, task: TaskDocument | None, typed: Mapping[str, str], errors: Mapping[str, str] | None = None
) -> WebPage:
    schedule, problem = await preview_of(visit, schedule_text(typed), typed.get("zone", "").strip() or "UTC")
    told = dict(errors or {})
    shown = {
        "task": task,
        "typed": {name: typed.get(name, "") for name in _FIELDS},
        "errors": told,
        "other": {name: why for name, why in told.items() if name not in _FIELDS},
        "revision": typed.get("revision") or (task.revision if task else ""),
        "kinds": KINDS if task is None or task.kind in KINDS else (*KINDS, task.kind),
        "projects": projects_of(visit.session, "developer"),
        "schedule": schedule,
        "when": schedule_text(typed),
        "problem": "" if "when" in told or "zone" in told else problem,
        "overlap": OVERLAP_TEXTS,
        "misfire": MISFIRE_TEXTS,
    }
    return WebPage("tasks/form.html", shown, {"typed": shown["typed"], "errors": told}, status=422 if told else 200)


def _text_page(visit: Visit, task: TaskDocument | None, text: str, errors: Mapping[str, str] | None = None) -> WebPage:
    revision = visit.form.get("revision") or (task.revision if task else "")
    shown = {"task": task, "text": text, "errors": errors or {}, "revision": revision}
    return WebPage("tasks/text.html", shown, {"text": text, "errors": errors or {}}, status=422 if errors else 200)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


_FIELDS = (
    *("project", "name", "kind", "description", "command", "url", "spider", "args", "schedule", "when", "zone"),
    *("overlap", "misfire", "retry_count", "retry_delay_seconds", "timeout_seconds", "max_running", "priority"),
    *("labels", "tags", "after", "params", "paused", "success_if"),
)

FORM_PAGES = {
    "/tasks/new": {"GET": new_task, "POST": create_task},
    "/tasks/{project}/{name}/edit": {"GET": edit_task, "POST": save_task},
}


LARGEST_FILE = 500_000
"""Characters of a file that a page takes; ``weft tasks apply`` takes larger ones."""
LARGEST_FORM = 8 * LARGEST_FILE + 100_000
"""Bytes of the form: a character has four at most, and a file may come beside a text."""
MOST_PARTS = 200_000
"""Values in a file. Some lines of YAML can stand for billions of them."""
FORMATS = ("toml", "yaml", "json")
NO_TOML = "a parameter without a default cannot be said in TOML; take YAML"


async def import_page(visit: Visit) -> WebPage:
    """A form to paste a file into, or to send one."""
    return _import_page({"format": "toml"})


async def import_tasks(visit: Visit) -> WebPage | Redirect:
    """Tell what a file would change; change it where that was asked for by somebody who has seen just that."""
    async with read_upload(visit, "file", LARGEST_FORM) as file:
        text, ending = await _uploaded_file(visit, file)
    typed = {"text": text, "format": ending, "prune": visit.form.get("prune", "")}
    seen = hashlib.sha256(repr(sorted(typed.items())).encode(errors="replace")).hexdigest()
    applies = visit.form.get("act") == "apply" and visit.form.get("seen") == seen
    query = {"dry_run": "false" if applies else "true", "prune": "true" if typed["prune"] else "false"}
    try:
        body = await asyncio.to_thread(read, text, ending)
        told = await visit.call(tasks.apply, query=query, body=body)
    except Invalid as problem:
        return _import_page(typed, {"text": str(problem)})
    except ApiError as refusal:
        return _import_page(typed, field_errors(refusal, "text", also=frozenset({403})))
    if applies:
        return Redirect(f"/tasks?said=applied&count={len(told.changes)}")
    return _import_page({**typed, "seen": seen}, told=told)


async def _uploaded_file(visit: Visit, file: UploadFile | None) -> tuple[str, str]:
    """The text that was pasted or sent, and its format."""
    if file is None:
        ending = visit.form.get("format", "")
        return visit.form.get("text", "").replace("\r\n", "\n"), ending if ending in FORMATS else "toml"
    ending = PurePath(file.filename or "").suffix.lstrip(".").replace("yml", "yaml")
    data = await file.read(4 * LARGEST_FILE + 1)
    return data.decode(errors="replace").replace("\r\n", "\n"), ending if ending in FORMATS else "toml"


def read(text: str, ending: str) -> Mapping[str, Any]:
    """What a file says, as the API takes it."""
    if len(text) > LARGEST_FILE:
        allowed = f"a page takes {LARGEST_FILE} at most; weft tasks apply takes more"
        raise Invalid("the file", f"{len(text)} characters long", allowed)
    if ending == "json":
        try:
            content = strict_json.decode(text)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise Invalid("task file", NOT_SHOWN, f"it is not JSON: {problem}") from problem
    else:
        content = taskfile.content(text, f".{ending}", "the text")
    if not isinstance(content, Mapping) or (not content.get("tasks") and not content.get("projects")):
        raise Invalid("task file", NOT_SHOWN, "it must have tasks ([[tasks]] in TOML) or projects")
    _check_size(content)
    return content


def _check_size(content: Any) -> None:
    """Refuse what is larger than it looks, or holds itself."""
    waiting, seen = [content], 0
    while waiting:
        each = waiting.pop()
        seen += 1
        if seen > MOST_PARTS:
            raise Invalid("task file", NOT_SHOWN, f"it may have {MOST_PARTS} values at most")
        waiting += list(each.values()) if isinstance(each, Mapping) else each if isinstance(each, list) else []


def _import_page(
    typed: Mapping[str, str], errors: Mapping[str, str] | None = None, told: tasks.ApplyResult | None = None
) -> WebPage:
    shown = {"typed": {"text": "", "prune": "", "seen": "", **typed}, "errors": errors or {}, "told": told}
    document = told or {"errors": errors or {}}
    return WebPage("tasks/import.html", shown, document, status=422 if errors else 200)


async def export_tasks(visit: Visit) -> Response | WebPage:
    """All tasks, or those of a project, as a file; without a format, a page to choose one."""
    project, ending = visit.query.get("project", "").strip(), visit.query.get("format", "")
    if ending not in FORMATS:
        return WebPage("tasks/export.html", {"project": project, "formats": FORMATS}, {"formats": FORMATS})
    content = await visit.call(tasks.export, query={"project": project} if project else {})
    text = await asyncio.to_thread(_export_text, content, ending)
    name = f"{re.sub(r'[^A-Za-z0-9._-]', '', project) or 'tasks'}.{ending}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(text, 200, headers, "application/octet-stream")


def _export_text(content: Mapping[str, Any], ending: str) -> str:
    if ending == "json":
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    if ending == "yaml":
        return yaml_text(content)
    text = toml_text(content)
    if text is None:
        raise Invalid("format", "toml", NO_TOML)
    return text


UPLOADS = frozenset({import_tasks})

FILE_PAGES = {"/tasks/import": {"GET": import_page, "POST": import_tasks}, "/tasks/export": {"GET": export_tasks}}

PAGES = FORM_PAGES | FILE_PAGES
