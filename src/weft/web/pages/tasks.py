"""Tasks: the list of them, one with all that it does and did, and what can be done with each or with many."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode
from zoneinfo import ZoneInfo

import msgspec

from weft.errors import Invalid
from weft.tasks.parameters import from_text
from weft.tasks.zones import zone_named
from weft.web.faults import faults
from weft.web.inside import Refusal
from weft.web.rendering import Live, Onward, Page
from weft.web.rights import may, may_somewhere
from weft.web.same_call import same_call
from weft.web.task_texts import MISFIRE, ON, OVERLAP, TICKS, WHY, deed, definition, file_text
from weft.web.visit import Visit
from weft.web.words import N_

FILTERS = ("project", "name", "kind", "tag", "paused")
KINDS = ("shell", "http", "spider", "noop")
BARS = 30
PARAM = "param-"
SAID = {
    "pause": N_("Tasks paused: {count}."),
    "resume": N_("Tasks that go on: {count}."),
    "run": N_("Run {count} is queued."),
    "backfill": N_("Runs queued for past ticks: {count}."),
    "saved": N_("The task is saved."),
    "made": N_("The task is made."),
    "deleted": N_("The task is deleted; its runs stay."),
    "applied": N_("Changes made: {count}."),
}
"""What a page says after something was done, by the word in its address."""


async def listing(visit: Visit) -> Page:
    """The tasks that are asked for, by project and name; a filter that cannot be is told beside its field."""
    asked = {name: visit.query.get(name, "").strip() for name in (*FILTERS, "after")}
    query = {name: value for name, value in asked.items() if value}
    errors: dict[str, str] = {}
    try:
        found = (await visit.ask("GET", "/v1/tasks", query={**query, "last_run": "true"})).document
    except Refusal as refusal:
        errors = faults(refusal, *FILTERS, also=frozenset({403, 404}))
        found = {"items": [], "next": None}
    kept = {name: value for name, value in query.items() if name != "after"}
    shown = {
        "tasks": found["items"],
        "asked": asked,
        "errors": errors,
        "kinds": KINDS,
        "kept": urlencode(kept),
        "more": "" if found["next"] is None else "/tasks?" + urlencode({**kept, "after": found["next"]}),
        "first": "/tasks?" + urlencode(kept) if asked["after"] else "",
        "can_pause": may_somewhere(visit.session, "operator"),
        "can_make": may_somewhere(visit.session, "developer"),
        "said": said(visit),
    }
    live = None if asked["after"] else Live(kinds=("run_", "task_"))
    return Page("tasks/list.html", shown, found, status=422 if errors else 200, live=live)


async def act_on_many(visit: Visit) -> Onward:
    """Pause or resume the tasks that were chosen, or all of the project that is shown, or all."""
    verb, _, scope = visit.form.get("act", "").partition("_")
    _check(verb, ("pause", "resume"))
    project = visit.form.get("project", "").strip()
    chosen: dict[str, Any] = {"tasks": visit.form.every("selected")}
    if scope == "all":
        chosen = {"project": project} if project else {"all": True}
    done: Sequence[str] = ()
    if scope == "all" or chosen["tasks"]:
        done = (await visit.ask("POST", f"/v1/tasks/{verb}", body=chosen)).document["tasks"]
    kept = [(name, value) for name, value in parse_qsl(visit.form.get("kept", "")) if name in FILTERS]
    return Onward("/tasks?" + urlencode([*kept, ("said", verb), ("count", len(done))]))


async def detail(visit: Visit) -> Page:
    """One task, as it is now."""
    return await _detail(visit)


async def act(visit: Visit) -> Page | Onward:
    """Run, pause, resume, back-fill or delete a task; then show it."""
    verb = visit.form.get("act", "")
    _check(verb, ("delete", *_DEEDS))
    try:
        if verb == "delete":
            await visit.ask("DELETE", _api(visit), headers={"if-match": f'"{visit.form.get("revision", "")}"'})
            return Onward("/tasks?said=deleted")
        count = await _DEEDS[verb](visit)
    except Refusal as refusal:
        names = [name for name in visit.form if name.startswith(PARAM)]
        if verb == "backfill":
            errors = faults(refusal, "from", "to", "backfill")
            errors = {"from" if "start" in (refusal.problem.field or "") else "to": next(iter(errors.values()))}
        else:
            told = faults(refusal, *(name.removeprefix(PARAM) for name in names), "task")
            errors = {f"{PARAM}{name}" if f"{PARAM}{name}" in names else name: why for name, why in told.items()}
        return await _detail(visit, errors=errors)
    return Onward(f"{_address(visit)}?said={verb}&count={count}")


def _check(verb: str, known: Collection[str]) -> None:
    if verb not in known:
        raise Invalid("act", verb, f"it must be one of {', '.join(known)}")


async def _run(visit: Visit) -> int:
    task = (await visit.ask("GET", _api(visit))).document
    typed = {name.removeprefix(PARAM): value for name, value in visit.form.items() if name.startswith(PARAM)}
    params = {
        name: from_text(value, task["params"].get(name))
        for name, value in typed.items()
        if value or isinstance(task["params"].get(name), str)
    }
    return int((await visit.ask("POST", f"{_api(visit)}/start", body={"params": params})).document["run_id"])


async def _pause(visit: Visit) -> int:
    await visit.ask("POST", f"{_api(visit)}/pause")
    return 1


async def _resume(visit: Visit) -> int:
    await visit.ask("POST", f"{_api(visit)}/resume")
    return 1


async def _backfill(visit: Visit) -> int:
    zone = zone_named(visit.form.get("zone", "UTC"))
    window = {name: _moment(visit.form.get(name, ""), zone) for name in ("from", "to")}
    return len((await visit.ask("POST", f"{_api(visit)}/backfill", body=window)).document["run_ids"])


def _moment(text: str, zone: ZoneInfo) -> str:
    """What was typed, with the offset of the zone; the API refuses what is no date."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (at if at.tzinfo else at.replace(tzinfo=zone)).isoformat()


_DEEDS = {"run": _run, "pause": _pause, "resume": _resume, "backfill": _backfill}


async def _detail(visit: Visit, *, errors: Mapping[str, str] | None = None) -> Page:
    named = f"{visit.path('project')}/{visit.path('name')}"
    of_task = {"project": visit.path("project"), "task": visit.path("name")}
    task, scheduled, runs, graph = await asyncio.gather(
        visit.ask("GET", _api(visit)),
        _scheduled(visit),
        visit.ask("GET", "/v1/runs", query={**of_task, "limit": str(BARS)}),
        visit.ask("GET", "/v1/tasks/graph", query={"task": named}),
    )
    document = {"task": task.document, "schedule": scheduled, "runs": runs.document["items"], "graph": graph.document}
    shown = {
        **document,
        **_around(named, graph.document),
        **_texts(visit, task.document),
        "bars": bars(runs.document["items"]),
        "errors": errors or {},
        "typed": visit.form,
        "said": said(visit),
        "can_run": may(visit.session, "operator", visit.path("project")),
        "can_edit": may(visit.session, "developer", visit.path("project")),
        "words": {"overlap": OVERLAP, "misfire": MISFIRE, "on": ON, "ticks": TICKS, "why": WHY},
    }
    live = Live(kinds=("run_", "task_", "tick"))
    return Page("tasks/detail.html", shown, document, status=422 if errors else 200, live=None if errors else live)


async def _scheduled(visit: Visit) -> Any:
    """The schedule with what lies ahead and what never fired; None where the task has none."""
    try:
        return (await visit.ask("GET", _api(visit, "schedules"))).document
    except Refusal as refusal:
        if refusal.problem.status != 404:
            raise
        return None


def _around(named: str, graph: Mapping[str, Any]) -> dict[str, Any]:
    nodes = {f"{node['project']}/{node['name']}": node for node in graph["tasks"]}
    before = [(nodes[edge["source"]], edge["on"]) for edge in graph["edges"] if edge["target"] == named]
    after = [(nodes[edge["target"]], edge["on"]) for edge in graph["edges"] if edge["source"] == named]
    return {"before": before, "following": after}


def _texts(visit: Visit, task: Mapping[str, Any]) -> dict[str, Any]:
    params = {name: value for name, value in task["params"].items() if value is not None}
    body = {"project": task["project"], "task": task["name"], **({"params": params} if params else {})}
    text, ending = file_text({"tasks": [definition(task)]})
    spec = msgspec.json.format(msgspec.json.encode(task["spec"]), indent=2).decode()
    address = str(visit.request.base_url).rstrip("/")
    return {"deed": deed(task), "spec": spec, "file": text, "ending": ending, "calls": same_call(address, body)}


def bars(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The newest runs, the oldest first: each with its state and a height by how long it took."""
    spans = [_seconds(run) for run in runs]
    longest = max((span for span in spans if span is not None), default=0.0) or 1.0
    found = [
        {"run": run, "seconds": span, "height": 1 if span is None else 1 + round(5 * span / longest)}
        for run, span in zip(runs, spans, strict=True)
    ]
    return found[::-1]


def _seconds(run: Mapping[str, Any]) -> float | None:
    if not run["started_at"] or not run["finished_at"]:
        return None
    return (datetime.fromisoformat(run["finished_at"]) - datetime.fromisoformat(run["started_at"])).total_seconds()


def said(visit: Visit) -> tuple[str, str, str] | None:
    """The sentence that the address asks for, the number in it, and the word that asked for it."""
    word, count = visit.query.get("said", ""), visit.query.get("count", "0")
    if word not in SAID:
        return None
    return SAID[word], count if count.isascii() and count.isdigit() and len(count) < 20 else "0", word


def _address(visit: Visit) -> str:
    return f"/tasks/{quote(visit.path('project'), safe='')}/{quote(visit.path('name'), safe='')}"


def _api(visit: Visit, noun: str = "tasks") -> str:
    return f"/v1/{noun}{_address(visit).removeprefix('/tasks')}"


PAGES = {
    "/tasks": {"GET": listing, "POST": act_on_many},
    "/tasks/{project}/{name}": {"GET": detail, "POST": act},
}
