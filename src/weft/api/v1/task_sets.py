"""Many tasks at once: paused together, seen as a graph, given as a file."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.api import examples
from weft.api.call import Call
from weft.api.operation import Operations
from weft.documents.task_files import file_content
from weft.documents.tasks import GraphDocument, graph_document
from weft.errors import Invalid
from weft.tasks.applying import Projects
from weft.tasks.changes import Wanted

operations = Operations("tasks")

Names = Annotated[list[str], msgspec.Meta(max_length=500)]


class Chosen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some tasks by name, or all of a project, or all that the caller may change."""

    tasks: Names = []
    """Each as project/name."""
    project: str | None = None
    all: bool = False


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that were changed, each as project/name; those that were so already are not among them."""

    tasks: list[str]


@operations.post(
    "/tasks/pause",
    needs=Role.OPERATOR,
    body=Chosen,
    answer=Changed,
    example={"tasks": ["shop/prices"]},
    example_body={"project": "shop"},
)
async def pause_many(call: Call) -> Changed:
    """Pause several tasks in one transaction: some by name, all of a project, or all."""
    return await _paused(call, paused=True)


@operations.post(
    "/tasks/resume",
    needs=Role.OPERATOR,
    body=Chosen,
    answer=Changed,
    example={"tasks": ["shop/prices"]},
    example_body={"tasks": ["shop/prices"]},
)
async def resume_many(call: Call) -> Changed:
    """Let several paused tasks go on from now, in one transaction: some by name, all of a project, or all."""
    return await _paused(call, paused=False)


async def _paused(call: Call, *, paused: bool) -> Changed:
    changed = await call.app.tasks.pause_all(_chosen(call), paused=paused)
    return Changed(tasks=sorted(task.full_name for task in changed))


def _chosen(call: Call) -> set[tuple[str, str]] | Projects:
    """What the body names, where the caller may change all of it."""
    body: Chosen = call.body
    if bool(body.tasks) + (body.project is not None) + body.all != 1:
        raise Invalid("body", "the choice", "it must have exactly one of tasks, project and all")
    if not body.tasks:
        return Projects(call.visible(body.project))
    named = set()
    for each in body.tasks:
        project, _, name = each.partition("/")
        call.check(project, f"task {each}")
        named.add((project, name))
    return named


class Of(msgspec.Struct, frozen=True, kw_only=True):
    """Of which project; without, of all."""

    project: str | None = None


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """Of which project, or around which task; without, all."""

    project: str | None = None
    task: str | None = None
    """As project/name: only what comes right before or after it."""


_RUN = {
    name: examples.RUN[name] for name in ("id", "state", "outcome", "reason", "queued_at", "started_at", "finished_at")
}
_NODE = {"project": "shop", "name": "prices", "kind": "shell", "paused": False, "starts": "every day at 02:30 (UTC)"}
_AFTER = {"project": "shop", "name": "report", "kind": "shell", "paused": False, "starts": "after prices"}


@operations.get(
    "/tasks/graph",
    needs=Role.VIEWER,
    query=Around,
    answer=GraphDocument,
    example={
        "tasks": [_NODE | {"last_run": _RUN}, _AFTER | {"last_run": None}],
        "edges": [{"source": "shop/prices", "target": "shop/report", "on": "success"}],
        "is_whole": True,
    },
)
async def graph(call: Call) -> GraphDocument:
    """Tell what comes after what, and how the newest run of each task stands; tasks that stand alone are left out."""
    asked: Around = call.query
    if asked.task is None:
        return graph_document(await call.app.tasks.graph(call.visible(asked.project)))
    project, _, name = asked.task.partition("/")
    call.check(project, f"task {asked.task}")
    stored = await call.app.tasks.get(project, name)
    return graph_document(await call.app.tasks.graph(call.visible(), stored.id))


@operations.get(
    "/tasks/export",
    needs=Role.VIEWER,
    query=Of,
    answer=dict[str, Any],
    example={"tasks": [{"name": "prices", "project": "shop", "kind": "noop", "schedule": {"cron": "30 2 * * *"}}]},
)
async def export(call: Call) -> dict[str, Any]:
    """Give tasks and settings of projects as ``tasks/apply`` takes them; what is at its default is left out."""
    asked: Of = call.query
    seen = call.visible(asked.project)
    found = await call.app.tasks.wanted(asked.project)
    if seen is None:
        return file_content(found)
    tasks = tuple(task for task in found.tasks if task.project in seen)
    return file_content(Wanted(tasks, {name: each for name, each in found.projects.items() if name in seen}))
