"""Deploy, list, compare, roll back and delete versions of a project, and list their spiders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.clock import iso
from weft.operations.operation import Call, Operations
from weft.operations.paging import Limit, Page, PageCursor, decode_names, encode_cursor
from weft.operations.problems import RequestRefused
from weft.projects.deploy_progress import DeployState
from weft.projects.model import SourceWarning, Spider, Version, VersionChange, VersionDiff
from weft.redaction import redacted


class ArgumentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a spider."""

    name: str
    default: str | None
    """As it stands in the code; null where it must be given."""
    annotation: str
    doc: str


class SpiderDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A spider of a version."""

    name: str
    doc: str
    arguments: list[ArgumentDocument]
    takes_more: bool
    """Whether it takes arguments that are not listed."""


class SourceWarningDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What stands out in the source of a version, because it will not work here as its author may think."""

    code: str
    """start_requests, outside_folder or environment."""
    file: str
    line: int
    name: str
    """Of the class, the path or the variable that it is about."""
    message: str


class VersionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A deployed version of a project's code."""

    project: str
    version: str
    digest: str
    """SHA-256 of the archive."""
    size: int
    format: str
    """egg, wheel, sdist or zip."""
    settings: str
    """The module of Scrapy's settings."""
    root: str
    """The folder inside the archive that modules are imported from."""
    requirements: str
    """The file inside the archive that names what it needs; empty: weft's own Scrapy is enough."""
    lock: str
    """SHA-256 of that file."""
    spiders: list[SpiderDocument]
    """Empty in a brief list."""
    spider_count: int
    is_current: bool
    """Whether runs execute it unless they say otherwise."""
    deployed_at: str | None
    deployed_by: str
    own_settings: dict[str, Any] | None
    """What its settings module says, secrets masked; null in a brief list, and where it was not kept."""
    warnings: list[SourceWarningDocument]
    """What a look at its source has found; empty in a brief list."""


class DeployStageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a deploy."""

    stage: str
    """received, checking, installing, importing or keeping."""
    step: str
    """What was done last in it, such as collecting."""
    values: dict[str, str]
    """Of that step, such as package."""
    text: str
    """The step as a sentence."""
    seconds: float
    """How long it took, or has taken so far."""


class DeployStepDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How far a deploy has come."""

    step: str
    """Such as ``collecting lxml>=4.6 (package 7)``; empty where nothing takes long, or no such deploy goes on."""
    seconds: float
    """Since the archive had arrived."""
    state: DeployState = "unknown"
    """unknown: no such deploy is known."""
    stages: list[DeployStageDocument] = []
    """Those that have begun, the first one first."""
    version: str = ""
    """Its name, once it is deployed."""
    problem: str = ""
    """Why it has failed."""
    traceback: str = ""
    """Where its code has failed."""


class VersionChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is otherwise in the later version; null where it is not there."""

    name: str
    before: Any
    after: Any


class SpiderChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A spider that both versions have, and what differs of it: its arguments by name, doc, takes_more."""

    name: str
    changes: list[VersionChangeDocument]


class VersionChangesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two versions."""

    project: str
    before: str
    after: str
    same_code: bool
    """Whether both have the same archive."""
    added: list[str]
    """Spiders that only the later version has."""
    removed: list[str]
    changed: list[SpiderChangeDocument]
    settings: list[VersionChangeDocument] | None
    """Settings of the project's own module; null where those of one of the two were not kept."""
    facts: list[VersionChangeDocument]
    """What differs of the code as a whole: format, settings (its module), root, requirements, lock."""


def spider_document(spider: Spider) -> SpiderDocument:
    arguments = [
        ArgumentDocument(name=each.name, default=each.default, annotation=each.annotation, doc=each.doc)
        for each in spider.arguments
    ]
    return SpiderDocument(name=spider.name, doc=spider.doc, arguments=arguments, takes_more=spider.takes_more)


def version_document(version: Version, *, brief: bool = False) -> VersionDocument:
    """A version with its spiders and settings, or without these."""
    own_settings = None if brief or version.own_settings is None else dict(version.own_settings)
    return VersionDocument(
        project=version.project,
        version=version.version,
        digest=version.digest,
        size=version.size,
        format=version.format,
        settings=version.code.settings,
        root=version.code.root,
        requirements=version.code.requirements,
        lock=version.code.lock,
        spiders=[] if brief else [spider_document(each) for each in version.spiders],
        spider_count=len(version.spiders),
        is_current=version.is_current,
        deployed_at=iso(version.deployed_at),
        deployed_by=version.deployed_by,
        own_settings=own_settings,
        warnings=[] if brief else [_warning(each) for each in version.warnings],
    )


def _warning(found: SourceWarning) -> SourceWarningDocument:
    return SourceWarningDocument(
        code=found.code, file=found.file, line=found.line, name=found.name, message=found.sentence
    )


def changes_document(found: VersionDiff) -> VersionChangesDocument:
    return VersionChangesDocument(
        project=found.after.project,
        before=found.before.version,
        after=found.after.version,
        same_code=found.same_code,
        added=list(found.added),
        removed=list(found.removed),
        changed=[
            SpiderChangeDocument(name=each.name, changes=[_change(one) for one in each.changes])
            for each in found.changed
        ],
        settings=None if found.settings is None else [_change(each) for each in found.settings],
        facts=[_change(each) for each in found.facts],
    )


def _change(change: VersionChange) -> VersionChangeDocument:
    return VersionChangeDocument(name=change.name, before=change.before, after=change.after)


operations = Operations("versions")

VERSIONS_PATH = "/projects/{project}/versions"
VERSION_PATH = f"{VERSIONS_PATH}/{{version}}"
MEDIA_TYPE = "application/octet-stream"
WRITTEN_BYTES = 1 << 20
"""So much of an archive is gathered before it is written."""
BODY_SECONDS, PIECE_SECONDS = 900.0, 60.0


class DeployQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployed version is called."""

    version: str | None = None
    """Left out: it is named after the time."""
    progress: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)")] | None = None
    """A name of your choice, under which `GET /v1/projects/{project}/deploys/{deploy}` tells how far it has come."""


class ProjectSpiderDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A spider, and the project whose current code has it."""

    project: str
    spider: SpiderDocument


class SpiderQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose spiders to list."""

    version: str | None = None
    """Left out: the current one."""


class VersionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions to list."""

    after: PageCursor | None = None
    limit: Limit | None = None
    """Left out: all of them, or 50 after a place."""
    brief: bool = False
    """Without their spiders and settings."""


class VersionChangesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a version is compared with."""

    since: str | None = None
    """Another version of the project. Left out: the current one."""


SPIDER_EXAMPLE: dict[str, Any] = {
    "name": "prices",
    "doc": "Prices of all products of a country.",
    "arguments": [{"name": "country", "default": "'de'", "annotation": "str", "doc": "Two letters."}],
    "takes_more": True,
}
VERSION_EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "version": "1.10",
    "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size": 48_211,
    "format": "zip",
    "settings": "shop.settings",
    "root": "",
    "requirements": "",
    "lock": "",
    "spiders": [SPIDER_EXAMPLE],
    "spider_count": 1,
    "is_current": True,
    "deployed_at": "2026-06-01T12:00:00.000Z",
    "deployed_by": "key:ci",
    "own_settings": {"BOT_NAME": "shop", "DOWNLOAD_DELAY": 0.5},
    "warnings": [
        {
            "code": "environment",
            "file": "shop/settings.py",
            "line": 12,
            "name": "SHOP_DB",
            "message": "it reads SHOP_DB from the environment, which does not reach runs unless spider_env names it",
        }
    ],
}
PROGRESS_EXAMPLE: dict[str, Any] = {
    "step": "collecting lxml>=4.6 (package 7)",
    "seconds": 12.4,
    "state": "running",
    "stages": [
        {"stage": "received", "step": "received", "values": {}, "text": "the archive has arrived", "seconds": 0.0},
        {"stage": "checking", "step": "checking", "values": {}, "text": "unpacking the archive", "seconds": 0.2},
        {
            "stage": "installing",
            "step": "collecting",
            "values": {"package": "lxml>=4.6", "number": "7"},
            "text": "collecting lxml>=4.6 (package 7)",
            "seconds": 12.2,
        },
    ],
    "version": "",
    "problem": "",
    "traceback": "",
}
VERSION_CHANGES_EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "before": "1.9",
    "after": "1.10",
    "same_code": False,
    "added": ["stock"],
    "removed": [],
    "changed": [
        {
            "name": "prices",
            "changes": [{"name": "country", "before": "country: str = 'de'", "after": "country: str = 'fr'"}],
        }
    ],
    "settings": [{"name": "DOWNLOAD_DELAY", "before": None, "after": 0.5}],
    "facts": [],
}


@operations.get(
    VERSIONS_PATH,
    needs=Role.VIEWER,
    query=VersionQuery,
    answer=Page[VersionDocument],
    example={"items": [VERSION_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[VersionDocument]:
    """List the versions of a project's code, the newest by name first."""
    project, asked = call.path("project"), call.query
    call.check(project)
    if (asked.after, asked.limit) == (None, None):
        every = await call.app.projects.versions(project)
        return Page(items=[version_document(each, brief=asked.brief) for each in every])
    place = decode_names(asked.after, 1)
    found, onward = await call.app.projects.page(project, None if place is None else place[0], asked.limit or 50)
    items = [version_document(each, brief=asked.brief) for each in found]
    return Page(items=items, next=None if onward is None else encode_cursor((onward,)))


@operations.post(
    VERSIONS_PATH,
    needs=Role.DEVELOPER,
    query=DeployQuery,
    takes=MEDIA_TYPE,
    answer=VersionDocument,
    status=201,
    example=VERSION_EXAMPLE,
)
async def deploy(call: Call) -> VersionDocument:
    """Deploy an archive (egg, wheel, sdist or zip) as a version, and make that the current one.

    The code is imported in a process of its own first. Where that fails nothing is kept, and the problem document has
    the traceback. The same code under the same name again changes nothing; other code under the same name is refused.
    """
    project, version = call.path("project"), call.query.version
    call.check(project)
    call.about, call.record = (project, f"version {version}" if version else ""), {}
    async with _received(call) as archive:
        deployed = await call.app.projects.deploy(
            project, archive, version, by=call.caller.actor, progress=call.query.progress
        )
    return version_document(deployed)


@operations.get(
    "/projects/{project}/deploys/{deploy}",
    needs=Role.DEVELOPER,
    answer=DeployStepDocument,
    example=PROGRESS_EXAMPLE,
)
async def progress(call: Call) -> DeployStepDocument:
    """Show how far a deploy has come that was given this name (progress).

    The gateway that has taken the archive knows it, until an hour after its end; any other answers that it is unknown.
    """
    project, deploy = call.path("project"), call.path("deploy")
    call.check(project, f"deploy {deploy}")
    found = await call.app.projects.progress(project, deploy)
    if found is None:
        return DeployStepDocument(step="", seconds=0.0)
    return DeployStepDocument(
        step=found.step.text,
        seconds=found.seconds,
        state=found.state,
        stages=[
            DeployStageDocument(
                stage=each.stage, step=each.step, values=each.values, text=each.text, seconds=each.seconds
            )
            for each in found.stages
        ],
        version=found.version,
        problem=redacted(found.problem),
        traceback=redacted(found.traceback),
    )


@operations.get(VERSION_PATH, needs=Role.VIEWER, answer=VersionDocument, example=VERSION_EXAMPLE)
async def show(call: Call) -> VersionDocument:
    """Show one version and its spiders."""
    return version_document(await call.app.projects.get(*_version_named(call)))


@operations.get(
    f"{VERSION_PATH}/changes",
    needs=Role.VIEWER,
    query=VersionChangesQuery,
    answer=VersionChangesDocument,
    example=VERSION_CHANGES_EXAMPLE,
)
async def changes(call: Call) -> VersionChangesDocument:
    """Compare a version with another one: spiders, their arguments, the project's own settings."""
    project, version = _version_named(call)
    since = call.query.since or (await call.app.projects.get(project)).version
    return changes_document(await call.app.projects.changes(project, since, version))


@operations.post(f"{VERSION_PATH}/use", needs=Role.DEVELOPER, answer=VersionDocument, example=VERSION_EXAMPLE)
async def use(call: Call) -> VersionDocument:
    """Make a version the current one: runs that are queued from now on execute it."""
    return version_document(await call.app.projects.use(*_version_named(call)))


@operations.delete(VERSION_PATH, needs=Role.DEVELOPER)
async def delete(call: Call) -> None:
    """Delete a version that is not the current one, or the last; refused while a run that needs it has not ended."""
    await call.app.projects.delete(*_version_named(call))


@operations.post("/projects/{project}/rollback", needs=Role.DEVELOPER, answer=VersionDocument, example=VERSION_EXAMPLE)
async def rollback(call: Call) -> VersionDocument:
    """Make the version current that was deployed before the current one."""
    project = call.path("project")
    call.check(project)
    return version_document(await call.app.projects.rollback(project))


@operations.get(
    "/projects/{project}/spiders",
    needs=Role.VIEWER,
    query=SpiderQuery,
    answer=Page[SpiderDocument],
    example={"items": [SPIDER_EXAMPLE], "next": None},
)
async def spiders(call: Call) -> Page[SpiderDocument]:
    """List the spiders of a project's code and the arguments that they take."""
    project = call.path("project")
    call.check(project)
    found = await call.app.projects.spiders(project, call.query.version)
    return Page(items=[spider_document(each) for each in found])


@operations.get(
    "/spiders",
    needs=Role.VIEWER,
    answer=Page[ProjectSpiderDocument],
    example={"items": [{"project": "shop", "spider": SPIDER_EXAMPLE}], "next": None},
)
async def all_spiders(call: Call) -> Page[ProjectSpiderDocument]:
    """List the spiders of every project's current code."""
    found = await call.app.projects.all_spiders(call.visible())
    placed = [(project, each) for project, spiders in found.items() for each in spiders]
    return Page(
        items=[ProjectSpiderDocument(project=project, spider=spider_document(each)) for project, each in placed]
    )


def _version_named(call: Call) -> tuple[str, str]:
    project, version = call.path("project"), call.path("version")
    call.check(project, f"version {version}")
    return project, version


@asynccontextmanager
async def _received(call: Call) -> AsyncIterator[Path]:
    """The body as a file, which is gone afterwards. No more of it is in memory than one piece."""
    _check_head(call)
    with call.app.projects.incoming.place("upload") as place:
        file = place / "archive"
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await _write(call, file)
        except TimeoutError:
            raise RequestRefused("too_slow", f"the archive did not arrive within {BODY_SECONDS:g} s") from None
        yield file


def _check_head(call: Call) -> None:
    if (call.header("content-type") or "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise RequestRefused("unsupported_media_type", f"{call.operation.name} takes {MEDIA_TYPE}")
    length, most = call.header("content-length") or "0", call.app.projects.largest_bytes
    if not length.isdigit() or int(length) > most:
        raise _too_large(most)


async def _write(call: Call, file: Path) -> None:
    most, size, gathered = call.app.projects.largest_bytes, 0, bytearray()
    pieces = call.http.stream().__aiter__()
    with file.open("xb") as opened:
        while (piece := await asyncio.wait_for(anext(pieces, None), PIECE_SECONDS)) is not None:
            size += len(piece)
            if size > most:
                raise _too_large(most)
            gathered += piece
            if len(gathered) >= WRITTEN_BYTES:
                await asyncio.to_thread(opened.write, bytes(gathered))
                gathered.clear()
        opened.write(gathered)


def _too_large(most: int) -> RequestRefused:
    return RequestRefused("too_large", f"an archive may have at most {most} bytes")
