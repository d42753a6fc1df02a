"""Tasks: the list, one with its runs and schedule, actions on many, and the dependency graph."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode
from zoneinfo import ZoneInfo

import msgspec

from weft.errors import Invalid
from weft.operations import paging, runs, schedules, tasks
from weft.operations.runs import RunDocument
from weft.operations.schedules import ScheduledDocument
from weft.operations.tasks import (
    TaskDocument,
    TaskGraphDocument,
    TaskGraphNode,
    TaskInput,
    task_content,
    task_of,
    toml_text,
    yaml_text,
)
from weft.runs.success_text import condition_lines
from weft.tasks.model import from_text
from weft.tasks.timezones import zone_named
from weft.web.forms import field_errors
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.snippets import start_commands
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit, may, may_somewhere

OVERLAP_TEXTS = {
    "allow": N_("A tick fires also while an earlier run is not finished."),
    "skip": N_("A tick is skipped while an earlier run is not finished."),
    "queue_one": N_("While a run is not finished, one tick waits behind it; more are skipped."),
    "replace": N_("A tick cancels the run of an earlier one and takes its place."),
}
MISFIRE_TEXTS = {
    "skip": N_("Ticks that come late do not fire."),
    "once": N_("Of ticks that come late, the latest fires."),
    "all": N_("Ticks that come late all fire, at most {count} of them."),
}
DEPENDENCY_CONDITIONS = {
    "success": N_("if it succeeds"),
    "failure": N_("if it fails"),
    "any": N_("however it ends"),
}
FIRE_STATES = {
    "queued": N_("fired"),
    "backfilled": N_("back-filled"),
    "skipped": N_("skipped"),
    "duplicate": N_("duplicate"),
    "missed": N_("missed"),
}
"""What came of a tick."""
FIRE_REASONS = {
    "skipped": N_("An earlier run was not finished."),
    "duplicate": N_("A run with the same target was pending or done."),
    "missed": N_("Weft was not running then, or the tick came too late for the policy."),
}
"""Why nothing came of one."""


def task_definition(document: Mapping[str, Any]) -> dict[str, Any]:
    """All of a task that is not at its default, from how the API shows it."""
    told = {name: value for name, value in document.items() if name in _DEFINITION_TYPE}
    body = msgspec.convert(told, TaskInput)
    return task_content(task_of(body, document["project"], document["name"]))


def definition_text(content: Mapping[str, Any]) -> tuple[str, str]:
    """Tasks as a file that ``weft tasks apply`` reads, and its format: TOML, or YAML where TOML cannot say it."""
    text = toml_text(content)
    return (yaml_text(content), "yaml") if text is None else (text.rstrip("\n") + "\n", "toml")


def action_text(task: TaskDocument) -> str:
    """What a task does, as it would be typed."""
    spec = task.spec
    if task.kind == "shell":
        return str(spec["script"]) if "script" in spec else shlex.join(map(str, spec.get("argv", ())))
    if task.kind == "http":
        return f"{spec.get('method', 'GET')} {spec.get('url', '')}"
    if task.kind == "spider":
        args = " ".join(f"-a {shlex.quote(f'{name}={value}')}" for name, value in spec.get("args", {}).items())
        return f"scrapy crawl {spec.get('spider', '')} {args}".rstrip()
    return ""


_DEFINITION_TYPE = frozenset(TaskInput.__struct_fields__)


NODE_WIDTH, NODE_HEIGHT = 200, 52
"""Of a node."""
LAYER_GAP, NODE_GAP = 80, 20
"""Between nodes."""
GRAPH_MARGIN = 8
ORDER_SWEEPS = 4
"""How often layers are put in the order of their neighbours; more of it changes little."""


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Where everything is, in pixels."""

    width: int
    height: int
    places: Mapping[str, tuple[int, int]]
    """The upper left corner of each node."""
    curves: Sequence[tuple[str, str, str]]
    """From which node to which, and the path of the line between them."""


def lay_out(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> GraphLayout:
    layers = _layers(nodes, edges)
    _order_layers(layers, edges)
    places = {
        node: (GRAPH_MARGIN + rank * (NODE_WIDTH + LAYER_GAP), GRAPH_MARGIN + number * (NODE_HEIGHT + NODE_GAP))
        for rank, layer in enumerate(layers)
        for number, node in enumerate(layer)
    }
    tallest = max((len(layer) for layer in layers), default=0)
    return GraphLayout(
        width=2 * GRAPH_MARGIN + max(len(layers) * (NODE_WIDTH + LAYER_GAP) - LAYER_GAP, 0),
        height=2 * GRAPH_MARGIN + max(tallest * (NODE_HEIGHT + NODE_GAP) - NODE_GAP, 0),
        places=places,
        curves=[(one, other, _curve(places[one], places[other])) for one, other in edges],
    )


def _layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Each node one layer behind the last of those that it comes after."""
    before: dict[str, list[str]] = {node: [] for node in nodes}
    for one, other in edges:
        before[other].append(one)
    ranks: dict[str, int] = {}
    waiting = list(nodes)
    while waiting:
        ready = [node for node in waiting if all(each in ranks for each in before[node])] or waiting
        ranks |= {node: max((ranks.get(each, -1) for each in before[node]), default=-1) + 1 for node in ready}
        waiting = [node for node in waiting if node not in ranks]
    layers: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for node in nodes:
        layers[ranks[node]].append(node)
    return layers


def _order_layers(layers: list[list[str]], edges: Sequence[tuple[str, str]]) -> None:
    """Put each node near those that it is joined to, so that few lines cross."""
    joined: dict[str, list[str]] = {}
    for one, other in edges:
        joined.setdefault(one, []).append(other)
        joined.setdefault(other, []).append(one)
    for _ in range(ORDER_SWEEPS):
        places = {node: number for layer in layers for number, node in enumerate(layer)}
        for layer in layers:
            layer.sort(key=lambda node: _median([places[each] for each in joined.get(node, ())], places[node]))
            places |= {node: number for number, node in enumerate(layer)}


def _median(numbers: Sequence[int], otherwise: int) -> float:
    return sum(numbers) / len(numbers) if numbers else float(otherwise)


def _curve(one: tuple[int, int], other: tuple[int, int]) -> str:
    x1, y1, x2, y2 = one[0] + NODE_WIDTH, one[1] + NODE_HEIGHT // 2, other[0], other[1] + NODE_HEIGHT // 2
    bend = LAYER_GAP // 2 if x2 > x1 else LAYER_GAP * 2
    return f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"


FILTERS = ("project", "name", "kind", "tag", "paused")
KINDS = ("shell", "http", "spider", "noop")
BARS = 30
PARAM = "param-"
MESSAGES = {
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


async def listing(visit: Visit) -> WebPage:
    """The tasks that are asked for, by project and name; a filter that cannot be is told beside its field."""
    asked = {name: visit.query.get(name, "").strip() for name in (*FILTERS, "after")}
    query = {name: value for name, value in asked.items() if value}
    errors: dict[str, str] = {}
    try:
        found = await visit.call(tasks.list_, query={**query, "last_run": "true"})
    except ApiError as refusal:
        errors = field_errors(refusal, *FILTERS, also=frozenset({403, 404}))
        found = paging.Page(items=[])
    kept = {name: value for name, value in query.items() if name != "after"}
    shown = {
        "tasks": found.items,
        "asked": asked,
        "errors": errors,
        "kinds": KINDS,
        "kept": urlencode(kept),
        "more": "" if found.next is None else "/tasks?" + urlencode({**kept, "after": found.next}),
        "first": "/tasks?" + urlencode(kept) if asked["after"] else "",
        "can_pause": may_somewhere(visit.session, "operator"),
        "can_make": may_somewhere(visit.session, "developer"),
        "said": messages_of(visit),
    }
    live = None if asked["after"] else LiveRefresh(kinds=("run_", "task_"))
    return WebPage("tasks/list.html", shown, found, status=422 if errors else 200, live=live)


async def act_on_many(visit: Visit) -> Redirect:
    """Pause or resume the tasks that were chosen, or all of the project that is shown, or all."""
    verb, _, scope = visit.form.get("act", "").partition("_")
    _check(verb, _BULK_ACTIONS)
    project = visit.form.get("project", "").strip()
    chosen: dict[str, Any] = {"tasks": visit.form.every("selected")}
    if scope == "all":
        chosen = {"project": project} if project else {"all": True}
    done: Sequence[str] = ()
    if scope == "all" or chosen["tasks"]:
        done = (await visit.call(_BULK_ACTIONS[verb], body=chosen)).tasks
    kept = [(name, value) for name, value in parse_qsl(visit.form.get("kept", "")) if name in FILTERS]
    return Redirect("/tasks?" + urlencode([*kept, ("said", verb), ("count", len(done))]))


async def detail(visit: Visit) -> WebPage:
    """One task, as it is now."""
    return await _detail(visit)


async def act(visit: Visit) -> WebPage | Redirect:
    """Run, pause, resume, back-fill or delete a task; then show it."""
    verb = visit.form.get("act", "")
    _check(verb, ("delete", *_ACTIONS))
    try:
        if verb == "delete":
            await visit.call(tasks.delete, sent={"if-match": f'"{visit.form.get("revision", "")}"'}, **_named(visit))
            return Redirect("/tasks?said=deleted")
        count = await _ACTIONS[verb](visit)
    except ApiError as refusal:
        names = [name for name in visit.form if name.startswith(PARAM)]
        if verb == "backfill":
            errors = field_errors(refusal, "from", "to", "backfill")
            errors = {"from" if "start" in (refusal.problem.field or "") else "to": next(iter(errors.values()))}
        else:
            told = field_errors(refusal, *(name.removeprefix(PARAM) for name in names), "task")
            errors = {f"{PARAM}{name}" if f"{PARAM}{name}" in names else name: why for name, why in told.items()}
        return await _detail(visit, errors=errors)
    return Redirect(f"{_address(visit)}?said={verb}&count={count}")


def _check(verb: str, known: Collection[str]) -> None:
    if verb not in known:
        raise Invalid("act", verb, f"it must be one of {', '.join(known)}")


async def _run(visit: Visit) -> int:
    task = await visit.call(tasks.show, **_named(visit))
    typed = {name.removeprefix(PARAM): value for name, value in visit.form.items() if name.startswith(PARAM)}
    params = {
        name: from_text(value, task.params.get(name))
        for name, value in typed.items()
        if value or isinstance(task.params.get(name), str)
    }
    return (await visit.call(tasks.start, body={"params": params}, **_named(visit))).run_id


async def _pause(visit: Visit) -> int:
    await visit.call(tasks.pause, **_named(visit))
    return 1


async def _resume(visit: Visit) -> int:
    await visit.call(tasks.resume, **_named(visit))
    return 1


async def _backfill(visit: Visit) -> int:
    zone = zone_named(visit.form.get("zone", "UTC"))
    window = {name: _moment(visit.form.get(name, ""), zone) for name in ("from", "to")}
    return len((await visit.call(tasks.backfill, body=window, **_named(visit))).run_ids)


def _moment(text: str, zone: ZoneInfo) -> str:
    """What was typed, with the offset of the zone; the API refuses what is no date."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (at if at.tzinfo else at.replace(tzinfo=zone)).isoformat()


_BULK_ACTIONS = {"pause": tasks.pause_many, "resume": tasks.resume_many}
_ACTIONS = {"run": _run, "pause": _pause, "resume": _resume, "backfill": _backfill}


async def _detail(visit: Visit, *, errors: Mapping[str, str] | None = None) -> WebPage:
    named = f"{visit.path('project')}/{visit.path('name')}"
    of_task = {"project": visit.path("project"), "task": visit.path("name")}
    task, scheduled, newest, graph = await asyncio.gather(
        visit.call(tasks.show, **_named(visit)),
        _scheduled(visit),
        visit.call(runs.list_, query={**of_task, "limit": str(BARS)}),
        visit.call(tasks.graph, query={"task": named}),
    )
    document = {"task": task, "schedule": scheduled, "runs": newest.items, "graph": graph}
    shown = {
        **document,
        **_neighbours(named, graph),
        **_texts(visit, task),
        "bars": bars(newest.items),
        "errors": errors or {},
        "typed": visit.form,
        "said": messages_of(visit),
        "can_run": may(visit.session, "operator", visit.path("project")),
        "can_edit": may(visit.session, "developer", visit.path("project")),
        "conditions": condition_lines(task.success_if),
        "words": {
            "overlap": OVERLAP_TEXTS,
            "misfire": MISFIRE_TEXTS,
            "on": DEPENDENCY_CONDITIONS,
            "ticks": FIRE_STATES,
            "why": FIRE_REASONS,
        },
    }
    live = LiveRefresh(kinds=("run_", "task_", "tick"))
    return WebPage("tasks/detail.html", shown, document, status=422 if errors else 200, live=None if errors else live)


async def _scheduled(visit: Visit) -> ScheduledDocument | None:
    """The schedule with what lies ahead and what never fired; None where the task has none."""
    try:
        return await visit.call(schedules.show, project=visit.path("project"), task=visit.path("name"))
    except ApiError as refusal:
        if refusal.problem.status != 404:
            raise
        return None


def _neighbours(named: str, graph: TaskGraphDocument) -> dict[str, Any]:
    nodes = {f"{node.project}/{node.name}": node for node in graph.tasks}
    before = [(nodes[edge.source], edge.on) for edge in graph.edges if edge.target == named]
    after = [(nodes[edge.target], edge.on) for edge in graph.edges if edge.source == named]
    return {"before": before, "following": after}


def _texts(visit: Visit, task: TaskDocument) -> dict[str, Any]:
    params = {name: value for name, value in task.params.items() if value is not None}
    body = {"project": task.project, "task": task.name, **({"params": params} if params else {})}
    text, ending = definition_text({"tasks": [task_definition(msgspec.to_builtins(task))]})
    spec = msgspec.json.format(msgspec.json.encode(task.spec), indent=2).decode()
    address = str(visit.request.base_url).rstrip("/")
    return {
        "deed": action_text(task),
        "spec": spec,
        "file": text,
        "ending": ending,
        "calls": start_commands(address, body),
    }


def bars(newest: Sequence[RunDocument]) -> list[dict[str, Any]]:
    """The newest runs, the oldest first: each with its state and a height by how long it took."""
    spans = [_seconds(run) for run in newest]
    longest = max((span for span in spans if span is not None), default=0.0) or 1.0
    found = [
        {"run": run, "seconds": span, "height": 1 if span is None else 1 + round(5 * span / longest)}
        for run, span in zip(newest, spans, strict=True)
    ]
    return found[::-1]


def _seconds(run: RunDocument) -> float | None:
    if not run.started_at or not run.finished_at:
        return None
    return (datetime.fromisoformat(run.finished_at) - datetime.fromisoformat(run.started_at)).total_seconds()


def messages_of(visit: Visit) -> tuple[str, str, str] | None:
    """The sentence that the address asks for, the number in it, and the word that asked for it."""
    word, count = visit.query.get("said", ""), visit.query.get("count", "0")
    if word not in MESSAGES:
        return None
    return MESSAGES[word], count if count.isascii() and count.isdigit() and len(count) < 20 else "0", word


def _address(visit: Visit) -> str:
    return f"/tasks/{quote(visit.path('project'), safe='')}/{quote(visit.path('name'), safe='')}"


def _named(visit: Visit) -> dict[str, Any]:
    return {"project": visit.path("project"), "name": visit.path("name")}


TASK_PAGES = {
    "/tasks": {"GET": listing, "POST": act_on_many},
    "/tasks/{project}/{name}": {"GET": detail, "POST": act},
}


MOST_DRAWN = 120
"""A picture of more tasks than this helps nobody; the list has more of them."""
MOST_LISTED = 300


async def task_graph(visit: Visit) -> WebPage:
    """The tasks that come after others, or before."""
    project, errors = visit.query.get("project", "").strip(), {}
    try:
        found = await visit.call(tasks.graph, query={"project": project} if project else {})
    except ApiError as refusal:
        errors = field_errors(refusal, "project", also=frozenset({403, 404}))
        found = TaskGraphDocument(tasks=[], edges=[], is_whole=True)
    nodes = {f"{each.project}/{each.name}": each for each in found.tasks}
    edges = [(each.source, each.target) for each in found.edges]
    before: dict[str, list[tuple[TaskGraphNode, str]]] = {name: [] for name in nodes}
    for edge in found.edges:
        before[edge.target].append((nodes[edge.source], edge.on))
    shown = {
        "nodes": nodes,
        "before": before,
        "project": project,
        "errors": errors,
        "is_whole": found.is_whole and len(nodes) <= MOST_LISTED,
        "most": MOST_LISTED,
        "on": DEPENDENCY_CONDITIONS,
        "ons": {(each.source, each.target): each.on for each in found.edges},
        "drawn": lay_out(list(nodes), edges) if 0 < len(nodes) <= MOST_DRAWN else None,
        "box": (NODE_WIDTH, NODE_HEIGHT),
    }
    live = LiveRefresh(kinds=("run_", "task_"))
    return WebPage("tasks/graph.html", shown, found, status=422 if errors else 200, live=live)


GRAPH_PAGES = {"/tasks/graph": {"GET": task_graph}}

PAGES = TASK_PAGES | GRAPH_PAGES
