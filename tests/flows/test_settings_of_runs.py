"""What settings of a weft, of a project and of a run change for its spiders, executed by a real worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.working import working
from tests.spiders import SETTINGS, project
from tests.waiting import eventually
from weft.app import App, open_app
from weft.config import Config
from weft.items.model import ItemQuery
from weft.projects.packing import pack
from weft.runs.model import ENDED, NewRun, Run, RunSpec
from weft.tasks.model import ProjectSettings
from weft.worker_setup import open_executor

SPIDERS = """
import os
import time

import scrapy

FOUND = {name: os.environ.get(name) for name in ("MY_DB", "SHOP_A", "SHOP_PASSWORD", "OTHER", "WEFT_SECRET_KEY")}


class Finds(scrapy.Spider):
    name = "finds"

    async def start(self):
        self.logger.info("the password is %s", FOUND["SHOP_PASSWORD"])
        yield FOUND


class Closes(scrapy.Spider):
    name = "closes"

    async def start(self):
        import asyncio

        yield {"has": "begun"}
        while True:
            await asyncio.sleep(0.05)

    def closed(self, reason):
        for _ in range(15):
            time.sleep(0.1)
        self.logger.info("closed at last")
"""
SCRIPT = 'printf "%s %s %s" "$MY_DB" "${SHOP_A:-none}" "${OTHER:-none}"'


@pytest.fixture
async def weft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name in ("MY_DB", "SHOP_A", "SHOP_PASSWORD", "OTHER", "WEFT_SECRET_KEY"):
        monkeypatch.setenv(name, f"the value of {name}")
    app = await open_app(Config(data_dir=str(tmp_path / "data"), port=0, heartbeat_seconds=0.1, spider_env="MY_DB"))
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code", spiders=SPIDERS, settings=f"{SETTINGS}WEFT_GRACE_SECONDS = 20\n"), file)
    for name in ("shop", "bank"):
        await app.projects.deploy(name, archive, "1")
    async with working(app):
        yield app


async def submitted(app: App, project: str, kind: str, spec: dict[str, Any]) -> int:
    (told,) = await app.runs.submit([NewRun(project=project, task=kind, kind=kind, spec=RunSpec(spec=spec))])
    return told.run_id


async def ended(app: App, run_id: int) -> Run:
    async def has_ended() -> bool:
        return (await app.runs.get(run_id)).state in ENDED

    await eventually(has_ended, timeout=60)
    return await app.runs.get(run_id)


async def items(app: App, run_id: int) -> list[dict[str, Any]]:
    return [row.data async for row in app.items.rows(ItemQuery(run_id=run_id, all_attempts=True))]


async def log_of(app: App, run_id: int) -> str:
    return (await app.runs.log(run_id)).decode()


async def test_the_variables_that_a_weft_and_a_project_name_reach_spiders_and_commands_and_no_others(
    weft: App,
) -> None:
    await weft.tasks.configure("shop", ProjectSettings(spider_env=("SHOP_*",)))
    found = {}
    for name in ("shop", "bank"):
        spider = await submitted(weft, name, "spider", {"spider": "finds"})
        command = await submitted(weft, name, "shell", {"script": SCRIPT})
        result = (await ended(weft, command)).result or {}
        await ended(weft, spider)
        found[name] = ((await items(weft, spider))[0], result["last_line"])
        assert "the value of SHOP_PASSWORD" not in await log_of(weft, spider)
    nothing = {"SHOP_A": None, "SHOP_PASSWORD": None, "OTHER": None, "WEFT_SECRET_KEY": None}
    mine = {"MY_DB": "the value of MY_DB", **nothing}
    theirs = {name: f"the value of {name}" for name in ("SHOP_A", "SHOP_PASSWORD")}
    assert found == {
        "shop": ({**mine, **theirs}, "the value of MY_DB the value of SHOP_A none"),
        "bank": (mine, "the value of MY_DB none none"),
    }


async def test_the_first_run_after_a_deploy_uses_the_process_that_was_prepared_with_the_variables_of_its_project(
    weft: App, tmp_path: Path
) -> None:
    await weft.tasks.configure("mill", ProjectSettings(spider_env=("SHOP_A",)))
    archive = tmp_path / "mill.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "mill", spiders=f"{SPIDERS}\n# of the mill", settings=SETTINGS), file)
    deployed = await weft.projects.deploy("mill", archive, "1")
    zygotes = open_executor("spider")._zygotes._all  # type: ignore[attr-defined]

    def prepared() -> set[Any]:
        return {key for key, task in zygotes.items() if key[0] == deployed.digest and task.done()}

    before = await eventually(prepared, timeout=60)
    run_id = await submitted(weft, "mill", "spider", {"spider": "finds"})
    await ended(weft, run_id)
    assert (await items(weft, run_id))[0]["SHOP_A"] == "the value of SHOP_A"
    assert (len(before), prepared()) == (1, before)


async def test_how_long_a_cancelled_spider_may_take_to_close_is_as_its_project_and_its_settings_say(
    weft: App,
) -> None:
    await weft.tasks.configure("shop", ProjectSettings(grace_seconds=0.3))
    closed = {}
    for name, seconds in (("shop", None), ("shop", "30"), ("bank", None)):
        settings = {} if seconds is None else {"WEFT_GRACE_SECONDS": seconds}
        run_id = await submitted(weft, name, "spider", {"spider": "closes", "settings": settings})

        async def has_begun(run_id: int = run_id) -> bool:
            return bool(await items(weft, run_id))

        await eventually(has_begun, timeout=60)
        await weft.runs.cancel(run_id)
        run = await ended(weft, run_id)
        assert (run.outcome, run.spec.grace_seconds) == ("cancelled", {"shop": 0.3, "bank": 20.0}[name])
        closed[name, seconds] = "closed at last" in await log_of(weft, run_id)
    assert closed == {("shop", None): False, ("shop", "30"): True, ("bank", None): True}
