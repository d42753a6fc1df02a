"""List projects, change their settings, and manage their secrets."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.access.secrets import LARGEST_SECRET, Secret
from weft.clock import iso
from weft.errors import Invalid, NotFound
from weft.operations.operation import ETAG_HEADER, IF_MATCH_HEADER, Call, Operations, check_etag, set_etag
from weft.operations.paging import Page
from weft.redaction import SHORTEST
from weft.runs.success import SpiderSettings, SuccessConditions
from weft.tasks.changes import raises_trust
from weft.tasks.model import ProjectSettings, check_name
from weft.user_code import Network

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
    """The least isolation of its runs."""
    may_run_unsandboxed: bool
    """Whether its runs may ask for no sandbox, with isolation L0."""
    may_build: bool
    """Whether packages that it needs may be built from source."""
    success_if: SuccessConditions | None
    """What must hold at the end of the runs of its spiders, or they have failed."""
    spiders: dict[str, SpiderSettings]
    """What holds for one spider, by its name."""
    spider_env: tuple[str, ...]
    """The variables of a worker's environment that its runs see: names, or PREFIX_*."""
    grace_seconds: float | None
    """How long a stopped run may take to end, where its task does not say; null: 10."""
    network: Network
    """What its runs and its code may connect to: all, none, or a list of TCP ports."""


PROJECT_EXAMPLE = {
    "name": "shop",
    "weight": 2.0,
    "max_running": 50,
    "max_queued": None,
    "tags": {"heavy": 2},
    "keep_days": 90.0,
    "min_isolation": None,
    "may_run_unsandboxed": False,
    "may_build": False,
    "success_if": {"finish_reason": "finished", "errors": {"max": 0}},
    "spiders": {"prices": {"success_if": {"items": {"min_percent_of_usual": 50}}}},
    "spider_env": ["SHOP_DB", "PROXY_*"],
    "grace_seconds": None,
    "network": [80, 443],
}


@operations.get(
    "/projects", needs=Role.VIEWER, answer=Page[ProjectDocument], example={"items": [PROJECT_EXAMPLE], "next": None}
)
async def list_(call: Call) -> Page[ProjectDocument]:
    """List the projects that have settings, tasks or runs."""
    found = await call.app.tasks.all_settings(call.visible())
    return Page(items=[_project_document(name, each) for name, each in found.items()])


@operations.get(
    "/projects/{project}",
    needs=Role.VIEWER,
    answer=ProjectDocument,
    answer_headers=ETAG_HEADER,
    example=PROJECT_EXAMPLE,
)
async def show(call: Call) -> ProjectDocument:
    """Show the settings of a project; one that nobody has set up has the defaults."""
    project = _project_named(call)
    return _project_shown(call, project, await call.app.tasks.settings(project))


@operations.put(
    "/projects/{project}",
    needs=Role.ADMIN,
    body=ProjectSettings,
    answer=ProjectDocument,
    headers=IF_MATCH_HEADER,
    answer_headers=ETAG_HEADER,
    example=PROJECT_EXAMPLE,
    example_body={"weight": 2.0, "max_running": 50, "tags": {"heavy": 2}, "keep_days": 90},
)
async def put(call: Call) -> ProjectDocument:
    """Set what holds for all tasks of a project; what is left out has its default.

    Only an admin of all projects may allow what is not allowed yet of may_run_unsandboxed, may_build, spider_env and
    network, and may lower min_isolation.
    """
    project = _project_named(call)
    same = check_etag(call, "project", project)

    def check(present: ProjectSettings) -> None:
        if same is not None:
            same(_project_document(project, present))
        named = ProjectSettings.__struct_fields__
        if any(raises_trust(name, getattr(present, name), getattr(call.body, name)) for name in named):
            call.caller.check(Role.ADMIN, EVERYWHERE)

    return _project_shown(call, project, await call.app.tasks.configure(project, call.body, check=check))


def _project_named(call: Call) -> str:
    project = call.path("project")
    call.check(project, f"project {project}")
    try:
        check_name("project", project)
    except Invalid as problem:
        raise NotFound("project", project) from problem
    return project


def _project_shown(call: Call, project: str, settings: ProjectSettings) -> ProjectDocument:
    document = _project_document(project, settings)
    set_etag(call, document)
    return document


def _project_document(name: str, settings: ProjectSettings) -> ProjectDocument:
    return ProjectDocument(name=name, **{each: getattr(settings, each) for each in ProjectSettings.__struct_fields__})


secret_operations = Operations("secrets")

SECRETS_PATH = "/projects/{project}/secrets"
SECRET_PATH = f"{SECRETS_PATH}/{{name}}"


class SecretDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, without its value."""

    project: str
    name: str
    updated_at: str | None
    updated_by: str


class SecretInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the secret is from now on."""

    value: Annotated[str, msgspec.Meta(min_length=SHORTEST, max_length=LARGEST_SECRET)]


SECRET_EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "name": "SHOP_TOKEN",
    "updated_at": "2026-06-01T12:00:00.000Z",
    "updated_by": "ada",
}


@secret_operations.get(
    SECRETS_PATH,
    name="list",
    needs=Role.ADMIN,
    answer=Page[SecretDocument],
    example={"items": [SECRET_EXAMPLE], "next": None},
)
async def list_secrets(call: Call) -> Page[SecretDocument]:
    """List the secrets of a project: names and times, never a value."""
    call.check(call.path("project"))
    return Page(items=[_secret_document(each) for each in await call.app.secrets.all(call.path("project"))])


@secret_operations.get(SECRET_PATH, name="show", needs=Role.ADMIN, answer=SecretDocument, example=SECRET_EXAMPLE)
async def show_secret(call: Call) -> SecretDocument:
    """Show when a secret was set and by whom, never its value."""
    project, name = _secret_named(call)
    for secret in await call.app.secrets.all(project):
        if secret.name == name:
            return _secret_document(secret)
    raise NotFound("secret", name)


@secret_operations.put(
    SECRET_PATH,
    name="set",
    needs=Role.ADMIN,
    body=SecretInput,
    answer=SecretDocument,
    example=SECRET_EXAMPLE,
    example_body={"value": "s3cr3t-value"},
)
async def set_secret(call: Call) -> SecretDocument:
    """Set a secret; an earlier value is gone."""
    project, name = _secret_named(call)
    call.record = {}
    return _secret_document(await call.app.secrets.set(project, name, call.body.value, by=call.caller.name))


@secret_operations.delete(SECRET_PATH, name="delete", needs=Role.ADMIN)
async def delete_secret(call: Call) -> None:
    """Delete a secret; runs that ask for it fail from now on."""
    await call.app.secrets.delete(*_secret_named(call))


def _secret_named(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"secret {name}")
    return project, name


def _secret_document(secret: Secret) -> SecretDocument:
    return SecretDocument(
        project=secret.project,
        name=secret.name,
        updated_at=iso(secret.updated_at),
        updated_by=secret.updated_by,
    )
