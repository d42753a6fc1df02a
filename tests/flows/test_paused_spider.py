"""A crawl that is paused in the middle and goes on: no page is fetched twice, none is left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flows.working import working
from tests.spiders import project
from tests.waiting import eventually
from weft.app import App, open_app
from weft.config import Config
from weft.items.model import ItemQuery
from weft.projects.packing import pack
from weft.runs.model import NewRun, RunSpec, RunState

PAGES = 40
SPIDERS = f"""
import scrapy


class Pages(scrapy.Spider):
    name = "pages"
    custom_settings = {{"DOWNLOAD_DELAY": 0.05, "CONCURRENT_REQUESTS": 1, "RANDOMIZE_DOWNLOAD_DELAY": False}}

    async def start(self):
        for number in range({PAGES}):
            yield scrapy.Request(f"data:,{{number}}", callback=self.parse)

    def parse(self, response):
        yield {{"number": int(response.text)}}
"""


@pytest.fixture
async def weft(tmp_path: Path) -> AsyncIterator[App]:
    app = await open_app(Config(data_dir=str(tmp_path / "data"), port=0, heartbeat_seconds=0.1))
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code", spiders=SPIDERS), file)
    await app.projects.deploy("shop", archive, "1")
    async with working(app):
        yield app


async def numbers(app: App, run_id: int) -> list[int]:
    return [row.data["number"] async for row in app.items.rows(ItemQuery(run_id=run_id, all_attempts=True))]


async def test_a_paused_crawl_goes_on_where_it_stopped(weft: App) -> None:
    spec = RunSpec(spec={"spider": "pages", "resumable": True})
    (submitted,) = await weft.runs.submit([NewRun(project="shop", task="pages", kind="spider", spec=spec)])
    run_id = submitted.run_id

    async def some_are_stored() -> bool:
        return len(await numbers(weft, run_id)) >= 3

    async def is_paused() -> bool:
        return (await weft.runs.get(run_id)).state is RunState.PAUSED

    async def has_succeeded() -> bool:
        return (await weft.runs.get(run_id)).state is RunState.SUCCEEDED

    await eventually(some_are_stored, timeout=60)
    await weft.pauses.pause(run_id)
    await eventually(is_paused, timeout=60)
    before = await numbers(weft, run_id)
    assert 0 < len(before) < PAGES
    await weft.pauses.resume(run_id)
    await eventually(has_succeeded, timeout=60)
    assert sorted(await numbers(weft, run_id)) == list(range(PAGES))
    assert not await weft.blobs.keys("places")
