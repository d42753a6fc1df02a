"""Projects: what holds for all tasks of one."""

from __future__ import annotations

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.etags import ETAG, IF_MATCH, tag, unchanged
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.errors import Invalid, NotFound
from weft.tasks.model import ProjectSettings, check_name

operations = Operations("projects")


class ProjectDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A project and its settings."""

    name: str
    weight: float
    """Its share of the workers, beside the other projects' weights."""
    max_running: int | None
    max_queued: int | None
    tags: dict[str, int]
    """How many runs with each tag may run at once."""
    keep_days: float | None
    """How long items and logs are kept after their run has ended; null: for ever."""
    min_isolation: str | None
    """How well its spiders must be walled in."""


EXAMPLE = {
    "name": "shop",
    "weight": 2.0,
    "max_running": 50,
    "max_queued": None,
    "tags": {"heavy": 2},
    "keep_days": 90.0,
    "min_isolation": None,
}


@operations.get(
    "/projects", needs=Role.VIEWER, answer=Page[ProjectDocument], example={"items": [EXAMPLE], "next": None}
)
async def list_(call: Call) -> Page[ProjectDocument]:
    """List the projects that have settings, tasks or runs."""
    found = await call.app.tasks.all_settings(call.visible())
    return Page(items=[_document(name, each) for name, each in found.items()])


@operations.get("/projects/{project}", needs=Role.VIEWER, answer=ProjectDocument, answer_headers=ETAG, example=EXAMPLE)
async def show(call: Call) -> ProjectDocument:
    """Show the settings of a project; one that nobody has set up has the defaults."""
    project = _named(call)
    return _shown(call, project, await call.app.tasks.settings(project))


@operations.put(
    "/projects/{project}",
    needs=Role.ADMIN,
    body=ProjectSettings,
    answer=ProjectDocument,
    headers=IF_MATCH,
    answer_headers=ETAG,
    example=EXAMPLE,
    example_body={"weight": 2.0, "max_running": 50, "tags": {"heavy": 2}, "keep_days": 90},
)
async def put(call: Call) -> ProjectDocument:
    """Set what holds for all tasks of a project; what is left out has its default."""
    project = _named(call)
    same = unchanged(call, "project", project)
    check = None if same is None else lambda settings: same(_document(project, settings))
    return _shown(call, project, await call.app.tasks.configure(project, call.body, check=check))


def _named(call: Call) -> str:
    project = call.path("project")
    call.check(project, f"project {project}")
    try:
        check_name("project", project)
    except Invalid as problem:
        raise NotFound("project", project) from problem
    return project


def _shown(call: Call, project: str, settings: ProjectSettings) -> ProjectDocument:
    document = _document(project, settings)
    tag(call, document)
    return document


def _document(name: str, settings: ProjectSettings) -> ProjectDocument:
    return ProjectDocument(name=name, **{each: getattr(settings, each) for each in ProjectSettings.__struct_fields__})
