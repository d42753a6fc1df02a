"""A real server that speaks Scrapyd, with the small project of ``tests/spiders.py`` deployed as ``shop``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.checks import remembered_checks
from tests.scrapyd.calling import Client, calling
from tests.scrapyd.making import egg_of
from tests.spiders import SPIDERS, project
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.db.database import Transaction
from weft.projects import store
from weft.projects.model import Code, Spider, Version

__all__ = ["a_version", "deployed", "egg", "remembered_checks", "scrapyd"]


@pytest.fixture(scope="session")
def egg(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The project as an egg."""
    return egg_of(project(tmp_path_factory.mktemp("shop")))


@pytest_asyncio.fixture
async def scrapyd(app: App) -> AsyncIterator[Client]:
    """A developer of all projects at a door where everything is Scrapyd's. ``shop`` is there as version ``1.0``, as far
    as lists know: ``deployed`` has code that can be executed."""
    await a_version(app)
    async with calling(app) as door:
        yield await door.granted({EVERYWHERE: Role.DEVELOPER})


@pytest_asyncio.fixture
async def deployed(scrapyd: Client, egg: bytes, tmp_path: Path, remembered_checks: None) -> Client:
    """The same, with the project's code."""
    archive = tmp_path / "shop.egg"
    archive.write_bytes(egg)
    await scrapyd.app.projects.delete("shop", "1.0")
    await scrapyd.app.projects.deploy("shop", archive, "1.0", by="test")
    return scrapyd


async def a_version(app: App, project: str = "shop", version: str = "1.0", digest: str = "ab" * 32) -> None:
    """A version as if it had been deployed, without the time that the check of one takes."""
    names = [line.split('"')[1] for line in SPIDERS.splitlines() if line.startswith("    name = ")]
    made = Version(
        project=project,
        version=version,
        digest=digest,
        size=1,
        format="egg",
        code=Code(version, digest, "shop.settings"),
        spiders=tuple(Spider(name) for name in sorted(names)),
        is_current=True,
        deployed_at=app.projects._clock(),
        deployed_by="test",
    )

    def work(tx: Transaction) -> None:
        store.hold(tx, project)
        store.add(tx, made)
        store.set_current(tx, project, version)

    await app.db.transact(work)
