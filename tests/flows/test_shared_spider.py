"""One spider in several runs of weft: each page once in all, also where a process is killed in between."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.agent import site as sites
from tests.agent.site import Site
from tests.flows.working import working
from tests.spiders import project
from tests.waiting import eventually
from weft.app import App, open_app
from weft.config import Config
from weft.items.model import ItemQuery
from weft.projects.packing import pack
from weft.runs.model import NewRun, Retry, RunSpec, RunState

PAGES = 40
SPIDERS = """
import os

import scrapy


class Walker(scrapy.Spider):
    name = "walker"
    custom_settings = {"DOWNLOAD_DELAY": 0.05, "FRONTIER_HOSTS": 2}

    def __init__(self, url, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [url]

    def parse(self, response):
        yield {"number": int(response.css("title::text").get()), "pid": os.getpid()}
        yield from response.follow_all(css="a")


class ByItsSettings(Walker):
    name = "by_its_settings"
    custom_settings = {**Walker.custom_settings, "SCHEDULER": "weft.agent.scheduler.FrontierScheduler"}
"""


@pytest.fixture
async def weft(tmp_path: Path, remembered_checks: None) -> AsyncIterator[App]:
    app = await open_app(Config(data_dir=str(tmp_path / "data"), port=0, heartbeat_seconds=0.1))
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code", spiders=SPIDERS), file)
    await app.projects.deploy("shop", archive, "1")
    async with working(app):
        yield app


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    async with sites.serving(PAGES) as site:
        yield site


async def begin(app: App, site: Site, count: int, **spec: object) -> list[int]:
    words = RunSpec(
        spec={"spider": "walker", "args": {"url": site.url(0)}, **spec}, retry=Retry(count=1, delay_seconds=0)
    )
    new = NewRun(project="shop", task="walk", kind="spider", spec=words)
    return [submitted.run_id for submitted in await app.runs.submit([new] * count)]


async def items(app: App, run_id: int) -> list[dict[str, int]]:
    return [row.data async for row in app.items.rows(ItemQuery(run_id=run_id))]


async def end(app: App, run_ids: list[int]) -> list[int]:
    """Wait for the runs; the pages that are among their items."""

    async def have_succeeded() -> bool:
        await app.reaper.tick()
        runs = [await app.runs.get(run_id) for run_id in run_ids]
        assert not [run for run in runs if run.state is RunState.FAILED]
        return all(run.state is RunState.SUCCEEDED for run in runs)

    await eventually(have_succeeded, timeout=60)
    return sorted(item["number"] for found in [await items(app, run_id) for run_id in run_ids] for item in found)


async def test_runs_of_a_spider_whose_settings_say_so_share_a_crawl(weft: App, site: Site) -> None:
    site.open.clear()
    run_ids = await begin(weft, site, 2, spider="by_its_settings")
    await eventually(lambda: site.asked)
    site.open.set()

    assert await end(weft, run_ids) == list(range(PAGES))
    assert set(site.asked.values()) == {1}
    (crawl,) = await weft.crawls.all(["shop"])
    assert (crawl.name, crawl.state) == ("walk", "done")
    assert [each.run_id for each in (await weft.crawls.report(crawl.id)).partitions] == sorted(run_ids, reverse=True)


async def test_a_run_whose_process_is_killed_goes_on_in_its_next_attempt(weft: App, site: Site) -> None:
    (run_id,) = await begin(weft, site, 1, frontier=True, settings={"FRONTIER_LEASE_SECONDS": 2.0})

    async def some_are_stored() -> list[dict[str, int]]:
        return await items(weft, run_id)

    stored = await eventually(some_are_stored, timeout=60)
    os.kill(stored[0]["pid"], signal.SIGKILL)

    assert set(await end(weft, [run_id])) == set(range(PAGES))
    assert (await weft.runs.get(run_id)).attempt == 2
    assert min(site.asked.values()) == 1


async def test_a_paused_crawl_goes_on_with_a_run_like_its_first(weft: App, site: Site) -> None:
    first = await begin(weft, site, 1, frontier=True)
    await eventually(lambda: len(site.asked) > 3, timeout=60)
    (crawl,) = await weft.crawls.all(["shop"])
    await weft.crawls.pause(crawl.id)
    before = await end(weft, first)
    await weft.crawls.resume(crawl.id)

    assert 0 < len(before) < PAGES
    assert await end(weft, [*first, first[0] + 1]) == list(range(PAGES))
    assert set(site.asked.values()) == {1}
    assert (await weft.crawls.get(crawl.id)).state == "done"


@pytest.mark.parametrize("count", [2, 3])
async def test_a_crawl_of_few_pages_is_over_with_its_run_and_the_next_run_begins_another(weft: App, count: int) -> None:
    async with sites.serving(count) as site:
        for times in (1, 2):
            assert await end(weft, await begin(weft, site, 1, frontier=True)) == list(range(count))
            assert [crawl.state for crawl in await weft.crawls.all(["shop"])] == ["done"] * times
            assert set(site.asked.values()) == {times}
