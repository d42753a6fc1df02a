"""A crawl whose frontier dies in the middle: it waits, and ends with the same pages as any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import servers
from tests.agent import site as sites
from tests.flows.working import working
from tests.servers import Server
from tests.waiting import eventually
from weft.app import App, open_app
from weft.config import Config
from weft.errors import FrontierDown
from weft.items.model import ItemQuery

PAGES = 40
SPEC = {
    "follow": True,
    "scope": {"within": "any"},
    "politeness": {"robots": False, "delay_seconds": 0},
    "keeping": {"warc": False},
}


@pytest.fixture
async def redis() -> AsyncIterator[Server]:
    with servers.redis() as server:
        yield server


@pytest.fixture
async def weft(redis: Server, tmp_path: Path) -> AsyncIterator[App]:
    app = await open_app(
        Config(
            data_dir=str(tmp_path / "data"),
            port=0,
            heartbeat_seconds=0.1,
            frontier=redis.url,
            crawl_contact="crawl@weft.example",
            allowed_networks="127.0.0.0/8",
        )
    )
    async with working(app):
        yield app


async def test_a_crawl_goes_on_when_its_frontier_was_killed(weft: App, redis: Server) -> None:
    async with sites.serving(PAGES) as site:
        site.open.clear()
        crawl = await weft.crawls.create("shop", {"urls": [site.url(0)], **SPEC})
        await eventually(lambda: site.asked, timeout=30)
        await asyncio.to_thread(redis.kill)
        site.open.set()
        with pytest.raises(FrontierDown):
            await weft.crawls.counts(crawl.id)
        assert (await weft.crawls.get(crawl.id)).state == "active"
        await asyncio.to_thread(redis.start)

        async def is_over() -> bool:
            return (await weft.crawls.get(crawl.id)).state == "done"

        await eventually(is_over, timeout=60)
        assert (await weft.crawls.counts(crawl.id)).done == PAGES
        assert (await weft.datasets.get("shop", "pages")).key_fields == ("url",)
        rows = [row.data async for row in weft.items.rows(ItemQuery(project="shop", dataset="pages"))]
        assert sorted(int(row["title"]) for row in rows) == list(range(PAGES))
