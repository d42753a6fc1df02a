"""Eggs that Scrapyd's clients send: taken, replaced, and refused without a trace."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from urllib.parse import quote_plus

from tests.conftest import OpenApp, on_sqlite
from tests.scrapyd.calling import Client, asked, calling, scheduled
from tests.scrapyd.making import egg_of
from tests.spiders import project
from tests.waiting import eventually
from weft.access.model import EVERYWHERE, Role

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NOT_ZIP = "egg is not a ZIP file (if using curl, use egg=@path not egg=path)"


async def test_an_egg_is_deployed_and_its_spiders_are_counted(scrapyd: Client, egg: bytes) -> None:
    answer = (await scrapyd.upload(egg, "books", "r1")).json
    spiders = (await asked(scrapyd, "/listspiders.json?project=books"))["spiders"]
    del answer["node_name"]
    assert answer == {"status": "ok", "project": "books", "version": "r1", "spiders": len(spiders)}
    assert "things" in spiders


@on_sqlite
async def test_an_egg_may_be_a_field_of_a_form_without_files(scrapyd: Client, egg: bytes) -> None:
    form = f"project=books&version=1.0&egg={quote_plus(egg)}".encode()
    assert (await scrapyd.send("/addversion.json", form, headers=FORM)).json["status"] == "ok"


@on_sqlite
async def test_what_is_no_zip_is_not_looked_at(scrapyd: Client) -> None:
    assert (await scrapyd.upload(b"no egg", "books")).json["message"] == NOT_ZIP
    answer = await scrapyd.send("/addversion.json", {"project": "books", "version": "1", "egg": "path"})
    assert answer.json["message"] == NOT_ZIP


@on_sqlite
async def test_a_zip_without_a_project_is_refused_and_not_kept(scrapyd: Client, tmp_path: Path) -> None:
    answer = await scrapyd.upload(egg_of(tmp_path), "books")
    assert (answer.status, answer.json["status"]) == (200, "error")
    assert (await asked(scrapyd, "/listprojects.json"))["projects"] == ["shop"]


async def test_code_that_cannot_be_imported_is_refused_with_its_traceback(scrapyd: Client, tmp_path: Path) -> None:
    broken = egg_of(project(tmp_path / "broken", settings="1 / 0\n"))
    answer = await scrapyd.upload(broken)
    assert answer.status == 200
    assert answer.json["message"].startswith("RunnerError: ")
    assert "ZeroDivisionError: division by zero" in answer.json["message"]
    assert (await scrapyd.app.projects.get("shop")).digest == "ab" * 32
    assert (await scrapyd.upload(broken, "books")).json["status"] == "error"
    assert (await asked(scrapyd, "/listprojects.json"))["projects"] == ["shop"]


async def test_a_version_gets_other_code_and_what_waits_keeps_its_own(
    deployed: Client, egg: bytes, tmp_path: Path
) -> None:
    await scheduled(deployed, jobid="before")
    other = egg_of(project(tmp_path / "other", more="OTHER = 1\n"))
    assert (await deployed.upload(other, version="1_0")).json["version"] == "1_0"
    await scheduled(deployed, jobid="after")
    old, new = await deployed.app.runs.find({}, oldest_first=True)
    assert old.spec.code is not None
    assert new.spec.code is not None
    assert old.spec.code.digest != new.spec.code.digest
    assert (await asked(deployed, "/listversions.json?project=shop"))["versions"] == ["1_0"]
    assert await deployed.app.blobs.get(f"code/{old.spec.code.digest}") == egg


@on_sqlite
async def test_code_that_was_replaced_is_gone_once_no_run_needs_it(
    deployed: Client, egg: bytes, tmp_path: Path
) -> None:
    before = (await deployed.app.projects.get("shop")).digest
    await scheduled(deployed, jobid="a")
    await deployed.upload(egg_of(project(tmp_path / "other", more="OTHER = 1\n")))
    assert await deployed.app.blobs.get(f"code/{before}") == egg
    await deployed.send("/cancel.json", {"project": "shop", "job": "a"})
    await deployed.upload(egg_of(project(tmp_path / "third", more="OTHER = 2\n")))
    assert await deployed.app.blobs.keys("code") == [f"code/{(await deployed.app.projects.get('shop')).digest}"]


@on_sqlite
async def test_an_older_version_does_not_become_the_current_one(deployed: Client, tmp_path: Path) -> None:
    older = egg_of(project(tmp_path / "older", more="OTHER = 1\n"))
    assert (await deployed.upload(older, version="0.9")).json["status"] == "ok"
    assert (await deployed.app.projects.get("shop")).version == "1.0"


@on_sqlite
async def test_an_egg_that_is_too_large_is_refused_and_nothing_is_left(another_app: OpenApp, tmp_path: Path) -> None:
    app = await another_app(largest_archive_bytes=1000)
    async with calling(app) as door:
        developer = await door.granted({EVERYWHERE: Role.DEVELOPER})
        answer = await developer.upload(b"x" * 2000)
        assert (answer.status, answer.json["status"]) == (413, "error")
        assert "an egg may have at most 1000 bytes" in answer.json["message"]
        form = f"project=shop&version=1&egg={'%20' * 2000}".encode()
        assert (await developer.send("/addversion.json", form, headers=FORM)).status == 413
    assert list((tmp_path / "incoming").iterdir()) == []


@on_sqlite
async def test_a_form_that_is_too_large_is_refused(scrapyd: Client) -> None:
    form = io.BytesIO(b"project=shop&spider=things&text=" + b"x" * (3 << 20))
    answer = await scrapyd.send("/schedule.json", form, headers=FORM)
    assert (answer.status, answer.json["status"]) == (413, "error")


@on_sqlite
async def test_the_status_is_told_while_a_project_is_imported(scrapyd: Client, tmp_path: Path) -> None:
    """The import ends only when the test lets it, which is after the status was told."""
    deploying = asyncio.create_task(scrapyd.upload(egg_of(project(tmp_path / "slow", settings=WAITING)), "slow"))
    [package] = await eventually(lambda: list(tmp_path.glob("incoming/check-*/code/shop")))
    for _ in range(5):
        assert (await asked(scrapyd, "/daemonstatus.json"))["status"] == "ok"
        assert not deploying.done()
    (package / "go").touch()
    assert (await deploying).json["status"] == "ok"


WAITING = """
import os
import time

while not os.path.exists(os.path.join(os.path.dirname(__file__), "go")):
    time.sleep(0.02)
SPIDER_MODULES = ["shop.spiders"]
"""
