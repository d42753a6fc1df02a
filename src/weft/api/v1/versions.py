"""Versions: the code of projects, and the spiders in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, cursor, names
from weft.api.problems import Refused
from weft.documents.versions import (
    ChangesDocument,
    SpiderDocument,
    VersionDocument,
    changes_document,
    spider_document,
    version_document,
)

operations = Operations("versions")

ALL = "/projects/{project}/versions"
ONE = f"{ALL}/{{version}}"
MEDIA_TYPE = "application/octet-stream"
WRITTEN_BYTES = 1 << 20
"""So much of an archive is gathered before it is written."""
BODY_SECONDS, PIECE_SECONDS = 900.0, 60.0


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployed version is called."""

    version: str | None = None
    """Left out: it is named after the time."""


class PlacedSpider(msgspec.Struct, frozen=True, kw_only=True):
    """A spider, and the project whose current code has it."""

    project: str
    spider: SpiderDocument


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Whose spiders to list."""

    version: str | None = None
    """Left out: the current one."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions to list."""

    after: After | None = None
    limit: Limit | None = None
    """Left out: all of them, or 50 after a place."""
    brief: bool = False
    """Without their spiders and settings."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What a version is compared with."""

    since: str | None = None
    """Another version of the project. Left out: the current one."""


SPIDER: dict[str, Any] = {
    "name": "prices",
    "doc": "Prices of all products of a country.",
    "arguments": [{"name": "country", "default": "'de'", "annotation": "str", "doc": "Two letters."}],
    "takes_more": True,
}
EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "version": "1.10",
    "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size": 48_211,
    "format": "zip",
    "settings": "shop.settings",
    "root": "",
    "requirements": "",
    "lock": "",
    "spiders": [SPIDER],
    "spider_count": 1,
    "is_current": True,
    "deployed_at": "2026-06-01T12:00:00.000Z",
    "deployed_by": "key:ci",
    "own_settings": {"BOT_NAME": "shop", "DOWNLOAD_DELAY": 0.5},
}
CHANGES: dict[str, Any] = {
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
    ALL, needs=Role.VIEWER, query=Listed, answer=Page[VersionDocument], example={"items": [EXAMPLE], "next": None}
)
async def list_(call: Call) -> Page[VersionDocument]:
    """List the versions of a project's code, the newest by name first."""
    project, asked = call.path("project"), call.query
    call.check(project)
    if (asked.after, asked.limit) == (None, None):
        every = await call.app.projects.versions(project)
        return Page(items=[version_document(each, brief=asked.brief) for each in every])
    place = names(asked.after, 1)
    found, onward = await call.app.projects.page(project, None if place is None else place[0], asked.limit or 50)
    items = [version_document(each, brief=asked.brief) for each in found]
    return Page(items=items, next=None if onward is None else cursor((onward,)))


@operations.post(
    ALL, needs=Role.DEVELOPER, query=Named, takes=MEDIA_TYPE, answer=VersionDocument, status=201, example=EXAMPLE
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
        deployed = await call.app.projects.deploy(project, archive, version, by=call.caller.actor)
    return version_document(deployed)


@operations.get(ONE, needs=Role.VIEWER, answer=VersionDocument, example=EXAMPLE)
async def show(call: Call) -> VersionDocument:
    """Show one version and its spiders."""
    return version_document(await call.app.projects.get(*_which(call)))


@operations.get(f"{ONE}/changes", needs=Role.VIEWER, query=Compared, answer=ChangesDocument, example=CHANGES)
async def changes(call: Call) -> ChangesDocument:
    """Compare a version with another one: spiders, their arguments, the project's own settings."""
    project, version = _which(call)
    since = call.query.since or (await call.app.projects.get(project)).version
    return changes_document(await call.app.projects.changes(project, since, version))


@operations.post(f"{ONE}/use", needs=Role.DEVELOPER, answer=VersionDocument, example=EXAMPLE)
async def use(call: Call) -> VersionDocument:
    """Make a version the current one: runs that are queued from now on execute it."""
    return version_document(await call.app.projects.use(*_which(call)))


@operations.delete(ONE, needs=Role.DEVELOPER)
async def delete(call: Call) -> None:
    """Delete a version that is not the current one, or the last; refused while a run that needs it has not ended."""
    await call.app.projects.delete(*_which(call))


@operations.post("/projects/{project}/rollback", needs=Role.DEVELOPER, answer=VersionDocument, example=EXAMPLE)
async def rollback(call: Call) -> VersionDocument:
    """Make the version current that was deployed before the current one."""
    project = call.path("project")
    call.check(project)
    return version_document(await call.app.projects.rollback(project))


@operations.get(
    "/projects/{project}/spiders",
    needs=Role.VIEWER,
    query=Which,
    answer=Page[SpiderDocument],
    example={"items": [SPIDER], "next": None},
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
    answer=Page[PlacedSpider],
    example={"items": [{"project": "shop", "spider": SPIDER}], "next": None},
)
async def all_spiders(call: Call) -> Page[PlacedSpider]:
    """List the spiders of every project's current code."""
    found = await call.app.projects.all_spiders(call.visible())
    placed = [(project, each) for project, spiders in found.items() for each in spiders]
    return Page(items=[PlacedSpider(project=project, spider=spider_document(each)) for project, each in placed])


def _which(call: Call) -> tuple[str, str]:
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
            raise Refused("too_slow", f"the archive did not arrive within {BODY_SECONDS:g} s") from None
        yield file


def _check_head(call: Call) -> None:
    if (call.header("content-type") or "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise Refused("unsupported_media_type", f"{call.operation.name} takes {MEDIA_TYPE}")
    length, most = call.header("content-length") or "0", call.app.projects.largest_bytes
    if not length.isdigit() or int(length) > most:
        raise _too_large(most)


async def _write(call: Call, file: Path) -> None:
    most, size, gathered = call.app.projects.largest_bytes, 0, bytearray()
    pieces = call.request.stream().__aiter__()
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


def _too_large(most: int) -> Refused:
    return Refused("too_large", f"an archive may have at most {most} bytes")
