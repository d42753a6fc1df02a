"""The example project: a new weft has it by itself, and its first run brings items from the demo site."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.cli.commanding import WEFT, answers
from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.app import App, open_app
from weft.cli.serve import EXAMPLE_DEPLOYER, EXAMPLE_PROJECT, EXAMPLE_SITE, deploy_example, pack_example
from weft.config import Config
from weft.demo import site
from weft.items.model import ItemQuery


@pytest_asyncio.fixture
async def new_weft(another_app: OpenApp) -> AsyncIterator[App]:
    app = await another_app(port=6800)
    await app.add_examples()
    yield app


@on_sqlite
async def test_a_new_weft_has_the_example_with_what_its_spider_takes(new_weft: App) -> None:
    await deploy_example(new_weft)
    deployed = await new_weft.projects.get(EXAMPLE_PROJECT)
    (spider,) = deployed.spiders
    assert (deployed.deployed_by, spider.name) == (EXAMPLE_DEPLOYER, "quotes")
    assert [argument.name for argument in spider.arguments] == ["tag", "pages", "site"]
    assert all(argument.doc for argument in spider.arguments)


@on_sqlite
@pytest.mark.usefixtures("remembered_checks")
async def test_starting_again_deploys_the_example_only_where_it_differs(
    new_weft: App, another_app: OpenApp, clock: SetClock
) -> None:
    await deploy_example(new_weft)
    await deploy_example(new_weft)
    assert len(await new_weft.projects.versions(EXAMPLE_PROJECT)) == 1
    clock.forward(1)
    await deploy_example(await another_app(port=6900))
    (spider,) = await new_weft.projects.spiders(EXAMPLE_PROJECT)
    assert spider.arguments[-1].default == "'http://127.0.0.1:6900/demo/'"


@on_sqlite
@pytest.mark.usefixtures("remembered_checks")
async def test_what_somebody_else_deployed_is_left_alone(new_weft: App, another_app: OpenApp, tmp_path: Path) -> None:
    theirs = pack_example(tmp_path / "theirs", "http://127.0.0.1:1/demo/")
    await new_weft.projects.deploy(EXAMPLE_PROJECT, theirs, "1.0", by="ada")
    await deploy_example(await another_app(port=6900))
    assert [each.version for each in await new_weft.projects.versions(EXAMPLE_PROJECT)] == ["1.0"]


@on_sqlite
async def test_without_its_task_or_a_port_the_example_is_not_deployed(new_weft: App, another_app: OpenApp) -> None:
    await deploy_example(await another_app(port=0))
    await new_weft.tasks.delete(EXAMPLE_PROJECT, "quotes")
    await deploy_example(new_weft)
    assert await new_weft.projects.versions(EXAMPLE_PROJECT) == []


@on_sqlite
async def test_a_weft_without_a_port_has_only_the_tasks_that_need_none(another_app: OpenApp) -> None:
    app = await another_app(port=0)
    await app.add_examples()
    assert [stored.task.name for stored in await app.tasks.all()] == ["hello"]


def test_the_example_is_packed_with_the_address_of_the_site_and_always_alike(tmp_path: Path) -> None:
    first = pack_example(tmp_path / "a", "http://127.0.0.1:7/demo/")
    assert first.read_bytes() == pack_example(tmp_path / "b", "http://127.0.0.1:7/demo/").read_bytes()
    shutil.unpack_archive(first, tmp_path / "c")
    settings = (tmp_path / "c" / "quotes" / "settings.py").read_text()
    assert 'SITE = "http://127.0.0.1:7/demo/"' in settings
    assert EXAMPLE_SITE not in settings


@pytest.fixture
def weft_up(tmp_path: Path) -> Iterator[Config]:
    """A weft as `weft up` starts it for the first time."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    with (tmp_path / "output").open("wb") as output:
        command = [WEFT, "up", "--port", str(port), "--workers", "1"]
        up = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
    try:
        asyncio.run(eventually(lambda: answers(port), 60))
        yield Config(data_dir=str(tmp_path / "weft-data"), port=port)
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)


def test_the_first_run_of_the_example_brings_its_items_without_the_internet(weft_up: Config) -> None:
    asyncio.run(eventually(lambda: has_example(weft_up), 60))
    command = [WEFT, "run", "quotes", "-a", "tag=love", "--wait"]
    done = subprocess.run(command, cwd=weft_up.folder.parent, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{(weft_up.folder.parent / 'output').read_text()}"
    found = asyncio.run(items_of(weft_up, ItemQuery(project=EXAMPLE_PROJECT, dataset="quotes")))
    assert sorted(item["text"] for item in found) == sorted(q.text for q in site().quotes if "love" in q.tags)
    assert {item["author"] for item in found} <= site().authors.keys()


async def has_example(config: Config) -> bool:
    app = await open_app(config)
    try:
        return bool(await app.projects.versions(EXAMPLE_PROJECT))
    finally:
        await app.close()


async def items_of(config: Config, wanted: ItemQuery) -> list[dict[str, Any]]:
    app = await open_app(config)
    try:
        return [row.data async for row in app.items.rows(wanted)]
    finally:
        await app.close()
