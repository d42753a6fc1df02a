"""Discovery and fetching as crawls of their own: one finds addresses, the other has the pages."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent import site as sites
from tests.flows.working import working
from tests.waiting import eventually
from weft.app import App, open_app
from weft.config import Config
from weft.crawler.messages import FINISHED
from weft.items.model import ItemQuery

PAGES = 40
POLITE = {"politeness": {"robots": False, "delay_seconds": 0}, "keeping": {"warc": False}}


@pytest.fixture(params=["database", "redis"])
async def weft(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    frontier = ""
    if request.param == "redis":
        frontier = f"{request.getfixturevalue('redis_server').url}?prefix=weft-{uuid.uuid4().hex}:"
    app = await open_app(
        Config(
            data_dir=str(tmp_path / "data"),
            port=0,
            heartbeat_seconds=0.1,
            frontier=frontier,
            crawl_contact="crawl@weft.example",
            allowed_networks="127.0.0.0/8",
        )
    )
    async with working(app):
        yield app


async def test_one_crawl_finds_the_addresses_and_another_fetches_the_pages(weft: App) -> None:
    async with sites.serving(PAGES) as site:
        fetch = await weft.crawls.create("shop", {"tier": "fetch", **POLITE}, name="pages")
        wide = {"follow": True, "scope": {"within": "any"}, "dataset": "links", **POLITE}
        spec = {"urls": [site.url(0)], "tier": "discover", "feeds": "pages", **wide}
        discover = await weft.crawls.create("shop", spec, name="links")

        async def are_fetched() -> bool:
            return (await weft.crawls.counts(fetch.id)).done == PAGES

        await eventually(are_fetched, timeout=60)
        await eventually(lambda: is_over(weft, discover.id), timeout=60)
        assert (await weft.crawls.counts(discover.id)).done == PAGES
        assert (await weft.crawls.get(fetch.id)).state == "active"
        await weft.crawls.stop(fetch.id)
        rows = [row.data async for row in weft.items.rows(ItemQuery(project="shop", dataset="pages"))]
        assert sorted(int(row["title"]) for row in rows) == list(range(PAGES))


async def is_over(weft: App, crawl_id: int) -> bool:
    return (await weft.crawls.get(crawl_id)).state == FINISHED
