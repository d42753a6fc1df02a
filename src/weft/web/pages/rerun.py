"""A run once more with something changed: the parameters of its task, or what a run without a task was given."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from weft import strict_json
from weft.operations import runs, tasks
from weft.operations.runs import RunDocument
from weft.operations.tasks import TaskDocument
from weft.tasks.model import from_text
from weft.web.forms import idempotency_header
from weft.web.pages.run import pretty, value_text
from weft.web.rendering import Redirect, WebPage
from weft.web.snippets import started_input
from weft.web.visit import ApiError, Visit, may

MOST_PARAMETERS = 40
"""Of a task with more, all are edited together."""
PARAMETER = re.compile(r"parameter (\w+)(?: of |$)")
NO_OBJECT = "it must be a JSON object, such as {}"
NO_PAIR = "each line must be NAME=VALUE"
REFUSALS = (400, 403, 404, 409, 413, 422, 429)


class RerunFormError(Exception):
    """What was typed cannot be understood; ``field`` is where it was typed."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


async def form(visit: Visit) -> WebPage:
    run, task = await _check_parameters(visit)
    way = _form_kind(visit, run, task)
    typed = _typed(run, task, way) | {"priority": str(run.priority), "key": secrets.token_hex(12)}
    return _page(visit, run, task, way, typed)


async def start(visit: Visit) -> WebPage | Redirect:
    """Start what was typed; where that is refused, show it again with the reason."""
    run, task = await _check_parameters(visit)
    way, typed = visit.form.get("way", ""), dict(visit.form)
    way = way if way in ("params", "args", "spec", "all") else _form_kind(visit, run, task)
    try:
        body = _body(run, task, way, typed)
        done = await visit.call(runs.start, body=body, sent=idempotency_header(visit.form, body))
    except RerunFormError as wrong:
        return _page(visit, run, task, way, typed, errors={wrong.field: str(wrong)})
    except ApiError as refusal:
        if refusal.problem.status not in REFUSALS:
            raise
        return _page(visit, run, task, way, typed, errors=_errors(refusal, way), status=refusal.problem.status)
    return Redirect(f"/runs/{done.run_id}?said=again")


async def _check_parameters(visit: Visit) -> tuple[RunDocument, TaskDocument | None]:
    """The run, and its task where that is still there."""
    run = await visit.call(runs.show, run_id=visit.path("run_id"))
    if run.task_id is None:
        return run, None
    try:
        return run, await visit.call(tasks.show, project=run.project, name=run.task)
    except ApiError as refusal:
        if refusal.problem.status != 404:
            raise
        return run, None


def _form_kind(visit: Visit, run: RunDocument, task: TaskDocument | None) -> str:
    """How it is changed: parameter by parameter, all of them, what a spider is given line by line, or its spec."""
    if task is not None and visit.query.get("as") != "spec":
        return "params" if len(task.params) <= MOST_PARAMETERS else "all"
    spec = run.spec.spec
    is_simple = all(_are_lines(spec.get(name) or {}) for name in ("args", "settings"))
    return "args" if run.kind == "spider" and is_simple and visit.query.get("as") != "spec" else "spec"


def _are_lines(values: object) -> bool:
    """Whether values can be written one a line, as NAME=VALUE, and read again as they were."""
    return isinstance(values, dict) and all(
        isinstance(value, str) and "=" not in name and not {*"\r\n"} & {*name, *value} and name == name.strip()
        for name, value in values.items()
    )


def _typed(run: RunDocument, task: TaskDocument | None, way: str) -> dict[str, str]:
    """What stands in the fields at first: what the run had."""
    spec, params = run.spec.spec, run.spec.params
    if way == "params" and task is not None:
        given = {name: params.get(name, default) for name, default in task.params.items()}
        return {f"param-{name}": "" if value is None else value_text(value) for name, value in given.items()}
    if way == "all":
        return {"params": pretty(params)}
    if way == "args":
        lines = {name: _lines(spec.get(name) or {}) for name in ("args", "settings")}
        return lines | {"version": str(spec.get("version") or "")}
    return {"spec": pretty(spec)}


def _body(run: RunDocument, task: TaskDocument | None, way: str, typed: Mapping[str, str]) -> dict[str, Any]:
    """What the API is asked for."""
    body: dict[str, Any] = {"priority": _number(typed.get("priority", ""))} if typed.get("priority", "") else {}
    body |= {"masked_from": run.id}
    if way in ("params", "all"):
        return body | {"project": run.project, "task": run.task, "params": _params(task, way, typed)}
    spec = _object("spec", typed.get("spec", "")) if way == "spec" else _spec(run, typed)
    loose = started_input(replace(run, task_id=None, priority=0))
    kept = {"grace_seconds": run.spec.grace_seconds, "log_bytes": run.spec.log_bytes, "retry": run.spec.retry}
    return loose | kept | body | {"spec": spec}


def _params(task: TaskDocument | None, way: str, typed: Mapping[str, str]) -> dict[str, Any]:
    if way == "all":
        return _object("params", typed.get("params", ""))
    known = {} if task is None else task.params
    given = {name: typed.get(f"param-{name}", "") for name in known}
    return {name: from_text(text, known[name]) for name, text in given.items() if text or isinstance(known[name], str)}


def _spec(run: RunDocument, typed: Mapping[str, str]) -> dict[str, Any]:
    spec = {**run.spec.spec}
    for name in ("args", "settings"):
        spec[name] = _pairs(name, typed.get(name, ""))
    spec.pop("version", None)
    version = typed.get("version", "").strip()
    return spec | ({"version": version} if version else {})


def _pairs(field: str, text: str) -> dict[str, str]:
    pairs = [line.partition("=") for line in text.split("\n") if line.strip()]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise RerunFormError(field, NO_PAIR)
    return {name.strip(): value for name, _, value in pairs}


def _object(field: str, text: str) -> dict[str, Any]:
    try:
        value = strict_json.decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise RerunFormError(field, f"{NO_OBJECT} ({problem})") from problem
    if not isinstance(value, dict):
        raise RerunFormError(field, NO_OBJECT)
    return value


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RerunFormError("priority", "it must be a whole number from -1000 to 1000") from None


def _errors(refusal: ApiError, way: str) -> dict[str, str]:
    """Beside which field the reason stands."""
    field = refusal.problem.field or ""
    if found := PARAMETER.match(field):
        return {f"param-{found[1]}" if way == "params" else "params": refusal.problem.detail}
    places = {"args": ("args", "settings", "version"), "spec": (field,), "all": ("params",)}.get(way, ())
    if field == "priority":
        return {field: refusal.problem.detail}
    return {("spec" if way == "spec" else field) if field in places else "": refusal.problem.detail}


def _page(
    visit: Visit,
    run: RunDocument,
    task: TaskDocument | None,
    way: str,
    typed: Mapping[str, str],
    *,
    errors: Mapping[str, str] | None = None,
    status: int = 422,
) -> WebPage:
    is_developer = may(visit.session, "developer", run.project)
    by_task = way in ("params", "all")
    shown = {
        "run": run,
        "task": task,
        "way": way,
        "typed": typed,
        "errors": errors or {},
        "spider": str(run.spec.spec.get("spider") or "") if run.kind == "spider" else "",
        "may_start": may(visit.session, "operator", run.project) if by_task else is_developer,
        "may_change_spec": is_developer and way != "spec",
    }
    document = {"run": run, "way": way, "typed": typed, "errors": errors or {}}
    return WebPage("run/again.html", shown, document, status=status if errors else 200)


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in values.items())


PAGES = {"/runs/{run_id}/again": {"GET": form, "POST": start}}
