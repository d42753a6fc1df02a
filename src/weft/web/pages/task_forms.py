"""Making and editing a task: by a form, or all of it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from weft.web.faults import TOLD_BESIDE
from weft.web.inside import Refusal
from weft.web.pages.schedules import previewed, written
from weft.web.rendering import Onward, Page
from weft.web.rights import may, projects_of
from weft.web.task_fields import Wrong, beside, task_of, typed_of
from weft.web.task_texts import MISFIRE, OVERLAP, definition
from weft.web.visit import Visit

KINDS = ("shell", "http", "spider")
FRESH: Mapping[str, str] = {
    "kind": "shell",
    "schedule": "none",
    "zone": "UTC",
    "overlap": "skip",
    "misfire": "once",
    "project": "default",
    "retry_delay_seconds": "1",
}
SKETCH = {"kind": "shell", "spec": {"script": "echo hello"}, "schedule": "@daily"}


async def new(visit: Visit) -> Page:
    """An empty form; the address may fill some of it, such as the project."""
    if visit.query.get("as") == "json":
        return _text_page(visit, None, _json({"project": "default", "name": "", **SKETCH}))
    typed = {**FRESH, **{name: value for name, value in visit.query.items() if name in _FIELDS}}
    return await _form(visit, None, typed)


async def make(visit: Visit) -> Page | Onward:
    return await _save(visit, None)


async def edit(visit: Visit) -> Page:
    """The form with a task that is there."""
    task = (await visit.ask("GET", _api(visit))).document
    if visit.query.get("as") == "json":
        return _text_page(visit, task, _json(definition(task)))
    return await _form(visit, task, typed_of(task))


async def change(visit: Visit) -> Page | Onward:
    return await _save(visit, (await visit.ask("GET", _api(visit))).document)


async def _save(visit: Visit, task: Mapping[str, Any] | None) -> Page | Onward:
    """Keep what was typed, or show it again with what is wrong beside its field."""
    is_text = "text" in visit.form
    if visit.form.get("act") == "preview" and not is_text:
        return await _form(visit, task, visit.form)
    try:
        body = _from_text(visit.form["text"]) if is_text else task_of(visit.form, task or {})
        project, name = _named(visit, task, body if is_text else visit.form)
        sent = {each: value for each, value in body.items() if each not in ("project", "name")}
        path = f"/v1/tasks/{quote(project, safe='')}/{quote(name, safe='')}"
        await visit.ask("PUT", path, body=sent, headers=_seen(visit, task))
    except Wrong as wrong:
        errors = {wrong.field: str(wrong)}
    except Refusal as refusal:
        is_elsewhere = task is None and not may(visit.session, "developer", project)
        if refusal.problem.status not in TOLD_BESIDE and not (refusal.problem.status == 403 and is_elsewhere):
            raise
        field = "project" if is_elsewhere else beside(refusal.problem.field or "", _FIELDS)
        why = refusal.problem.detail.rpartition(f"({name}): ")[2]
        errors = {"text" if is_text else field: why}
    else:
        word = "made" if task is None else "saved"
        return Onward(f"/tasks/{quote(project, safe='')}/{quote(name, safe='')}?said={word}")
    if is_text:
        return _text_page(visit, task, visit.form["text"], errors)
    return await _form(visit, task, visit.form, errors)


def _named(visit: Visit, task: Mapping[str, Any] | None, told: Mapping[str, Any]) -> tuple[str, str]:
    if task is not None:
        return str(task["project"]), str(task["name"])
    project, name = (str(told.get(each) or "").strip() for each in ("project", "name"))
    for field, value in (("project", project), ("name", name)):
        if not value or "/" in value:
            why = "it must be letters, digits, '.', '_' or '-', starting with a letter or digit"
            raise Wrong("text" if "text" in visit.form else field, f"{field} is {value!r}; {why}")
    return project, name


def _seen(visit: Visit, task: Mapping[str, Any] | None) -> dict[str, str]:
    if task is None:
        return {"if-none-match": "*"}
    return {"if-match": f'"{visit.form.get("revision", "")}"'}


def _from_text(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise Wrong("text", f"it is not a JSON object: {problem}") from problem


async def _form(
    visit: Visit, task: Mapping[str, Any] | None, typed: Mapping[str, str], errors: Mapping[str, str] | None = None
) -> Page:
    schedule, problem = await previewed(visit, written(typed), typed.get("zone", "").strip() or "UTC")
    told = dict(errors or {})
    shown = {
        "task": task,
        "typed": {name: typed.get(name, "") for name in _FIELDS},
        "errors": told,
        "other": {name: why for name, why in told.items() if name not in _FIELDS},
        "revision": typed.get("revision") or (task["revision"] if task else ""),
        "kinds": KINDS if task is None or task["kind"] in KINDS else (*KINDS, task["kind"]),
        "projects": projects_of(visit.session, "developer"),
        "schedule": schedule,
        "when": written(typed),
        "problem": "" if "when" in told or "zone" in told else problem,
        "overlap": OVERLAP,
        "misfire": MISFIRE,
    }
    return Page("tasks/form.html", shown, {"typed": shown["typed"], "errors": told}, status=422 if told else 200)


def _text_page(
    visit: Visit, task: Mapping[str, Any] | None, text: str, errors: Mapping[str, str] | None = None
) -> Page:
    revision = visit.form.get("revision") or (task["revision"] if task else "")
    shown = {"task": task, "text": text, "errors": errors or {}, "revision": revision}
    return Page("tasks/text.html", shown, {"text": text, "errors": errors or {}}, status=422 if errors else 200)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _api(visit: Visit) -> str:
    return f"/v1/tasks/{quote(visit.path('project'), safe='')}/{quote(visit.path('name'), safe='')}"


_FIELDS = (
    *("project", "name", "kind", "description", "command", "url", "spider", "args", "schedule", "when", "zone"),
    *("overlap", "misfire", "retry_count", "retry_delay_seconds", "timeout_seconds", "max_running", "priority"),
    *("labels", "tags", "after", "params", "paused"),
)

PAGES = {
    "/tasks/new": {"GET": new, "POST": make},
    "/tasks/{project}/{name}/edit": {"GET": edit, "POST": change},
}
