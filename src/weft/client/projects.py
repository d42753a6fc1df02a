"""The code of projects on a weft elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from weft.client.connection import Connection
from weft.client.values import at
from weft.errors import NotFound
from weft.operations.paging import Page
from weft.operations.versions import DeployStepDocument, ProjectSpiderDocument, SpiderDocument, VersionDocument
from weft.projects.deploy_progress import DeployStep
from weft.projects.model import Code, SourceWarning, Spider, Version

DEPLOY_SECONDS = 1800.0
"""To send an archive and have it checked; what it requires may have to be installed first."""


class RemoteProjects:
    """What ``projects.Projects`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def deploy(
        self, project: str, archive: Path, version: str | None = None, *, by: str = "", progress: str | None = None
    ) -> Version:
        """Send an archive; who deploys it, the gateway knows."""
        path, query = ("projects", project, "versions"), {"version": version, "progress": progress}
        with archive.open("rb") as content:
            document = await self._connection.call(
                "POST", path, VersionDocument, query=query, content=content, seconds=DEPLOY_SECONDS
            )
        return _version(document)

    async def step(self, project: str, progress: str) -> DeployStep:
        """What the deploy of this name is busy with."""
        found = await self._connection.get(DeployStepDocument, "projects", project, "deploys", progress)
        return DeployStep(found.step, found.seconds)

    async def versions(self, project: str) -> list[Version]:
        page = await self._connection.get(Page[VersionDocument], "projects", project, "versions")
        return [_version(each) for each in page.items]

    async def get(self, project: str, version: str | None = None) -> Version:
        """One version, or the current one."""
        if version is None:
            current = [each for each in await self.versions(project) if each.is_current]
            if not current:
                raise NotFound("deployed version", f"of project {project}; `weft deploy` makes one")
            version = current[0].code.version
        return _version(await self._connection.get(VersionDocument, "projects", project, "versions", version))

    async def spiders(self, project: str, version: str | None = None) -> tuple[Spider, ...]:
        page = await self._connection.get(Page[SpiderDocument], "projects", project, "spiders", version=version)
        return tuple(_spider(each) for each in page.items)

    async def all_spiders(self) -> dict[str, tuple[Spider, ...]]:
        """The spiders of every project's current version."""
        page = await self._connection.get(Page[ProjectSpiderDocument], "spiders")
        found: dict[str, tuple[Spider, ...]] = {}
        for each in page.items:
            found[each.project] = (*found.get(each.project, ()), _spider(each.spider))
        return found

    async def having(self, spider: str) -> list[str]:
        """The projects whose current version has a spider of this name."""
        found = await self.all_spiders()
        return [project for project, spiders in found.items() if any(each.name == spider for each in spiders)]

    async def use(self, project: str, version: str) -> Version:
        return _version(await self._connection.post(VersionDocument, "projects", project, "versions", version, "use"))

    async def rollback(self, project: str) -> Version:
        return _version(await self._connection.post(VersionDocument, "projects", project, "rollback"))

    async def delete(self, project: str, version: str) -> None:
        await self._connection.call("DELETE", ("projects", project, "versions", version), None)


def _version(document: VersionDocument) -> Version:
    fields: dict[str, Any] = {name: getattr(document, name) for name in document.__struct_fields__}
    del fields["spider_count"]
    parts = [fields.pop(name) for name in ("settings", "root", "requirements", "lock")]
    fields["code"] = Code(document.version, document.digest, *parts)
    fields["spiders"] = tuple(_spider(each) for each in document.spiders)
    fields["warnings"] = tuple(SourceWarning(each.code, each.file, each.line, each.name) for each in document.warnings)
    return Version(**fields | {"deployed_at": at(document.deployed_at) or 0})


def _spider(document: SpiderDocument) -> Spider:
    return msgspec.convert(msgspec.to_builtins(document), Spider)
