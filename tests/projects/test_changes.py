"""What differs between two versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import on_sqlite
from tests.projects.making import SPIDER, a_version, project, zipped
from weft.app import App
from weft.errors import NotFound
from weft.projects.model import VersionChange

SETTINGS = 'SPIDER_MODULES = ["shop.spiders"]\n'
STOCK = '\n\nclass Stock(scrapy.Spider):\n    name = "stock"\n'


async def deploy(app: App, folder: Path, version: str, **changed: str) -> None:
    file = folder / f"{version}.zip"
    file.write_bytes(zipped(project(**changed)))
    await app.projects.deploy("shop", file, version)


@on_sqlite
async def test_spiders_arguments_and_settings_that_differ_are_told(app: App, tmp_path: Path) -> None:
    await deploy(app, tmp_path, "1.0", settings=SETTINGS + "DOWNLOAD_DELAY = 1\nTAGS = {'a'}\n")
    changed = SPIDER.replace('country: str = "de"', "country, pages: int = 3")
    settings = SETTINGS + "DB_PASSWORD = 'hush-hush'\nTAGS = {'a'}\nFEED = 'postgres://me:hush-hush@db.example/x'\n"
    await deploy(app, tmp_path, "1.1", spider=changed + STOCK, settings=settings)
    found = await app.projects.changes("shop", "1.0", "1.1")
    assert (found.added, found.removed, found.same_code) == (("stock",), (), False)
    (prices,) = found.changed
    assert prices.name == "prices"
    assert prices.changes == (
        VersionChange(name="country", before="country: str = 'de'", after="country"),
        VersionChange(name="pages", before=None, after="pages: int = 3"),
    )
    assert found.settings is not None
    assert {each.name: (each.before, each.after) for each in found.settings} == {
        "DB_PASSWORD": (None, "••••"),
        "DOWNLOAD_DELAY": (1, None),
        "FEED": (None, "postgres://••••@db.example/x"),
    }
    assert found.facts == ()


@on_sqlite
async def test_settings_that_are_long_odd_or_endless_do_not_stop_a_deploy(app: App, tmp_path: Path) -> None:
    endless = "ENDLESS = []\nENDLESS.append(ENDLESS)\nODD = object()\nKEYED = {(1, 2): 3}\n"
    endless += "LONG = ['x' * 100] * 100_000\n"
    await deploy(app, tmp_path, "1.0", settings=SETTINGS + endless)
    kept = (await app.projects.get("shop", "1.0")).own_settings
    assert kept is not None
    assert (kept["ENDLESS"], kept["ODD"], kept["KEYED"]) == ("list", "object", {})
    assert kept["LONG"] == "… (10400000 characters)"


async def test_settings_of_a_version_that_has_none_are_not_known(app: App) -> None:
    await a_version(app, "shop", "1.0")
    await a_version(app, "shop", "1.1", digest="cd" * 32)
    found = await app.projects.changes("shop", "1.0", "1.1")
    assert (found.settings, found.changed, found.same_code) == (None, (), False)
    with pytest.raises(NotFound, match=r"version 7 of project shop"):
        await app.projects.changes("shop", "1.0", "7")


async def test_versions_come_in_pages_in_their_real_order(app: App) -> None:
    for version in ("1.9", "1.10", "1.2", "v2"):
        await a_version(app, "shop", version)
    first, onward = await app.projects.page("shop", None, 2)
    assert ([each.version for each in first], onward) == (["v2", "1.10"], "1.10")
    rest, end = await app.projects.page("shop", onward, 2)
    assert ([each.version for each in rest], end) == (["1.9", "1.2"], None)
