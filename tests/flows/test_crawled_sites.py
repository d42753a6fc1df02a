"""Sites that are crawled by a real worker: complete, or what is missing is told first, with how to fetch it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from experiments.answering import Answering
from tests.crawls.sites import Site, page, text
from tests.flows.working import working
from tests.waiting import eventually
from weft.app import App, open_app
from weft.cli.crawl_progress import summary
from weft.config import Config
from weft.crawler.messages import FINISHED
from weft.crawls.model import CrawlReport

PAGES = 12
PATHS = [f"/p/{number}" for number in range(PAGES)]


@pytest.fixture
async def weft(tmp_path: Path) -> AsyncIterator[App]:
    folder, contact = str(tmp_path / "data"), "us@weft.example"
    app = await open_app(
        Config(data_dir=folder, heartbeat_seconds=0.1, crawl_contact=contact, allowed_networks="127.0.0.0/8")
    )
    async with working(app):
        yield app


async def crawled(weft: App, server: Answering, most: int) -> CrawlReport:
    """How a crawl of the site stands that takes so many links of a page, once it is done."""
    spec = {
        "urls": [server.url()],
        "follow": True,
        "politeness": {"delay_seconds": 0},
        "traps": {"links_per_page": most},
    }
    crawl = await weft.crawls.create("shop", spec)

    async def is_over() -> bool:
        return (await weft.crawls.get(crawl.id)).state == FINISHED

    await eventually(is_over, timeout=60)
    return await weft.crawls.report(crawl.id)


async def test_a_crawl_that_drops_links_says_so_first_and_the_crawl_that_it_names_is_complete(weft: App) -> None:
    pages = {"/": page("Start", "<p>Start.", PATHS)} | {path: page(path, f"<p>{text(path)}", []) for path in PATHS}
    async with Answering(Site("list", pages).answer).serving() as server:
        cut = await crawled(weft, server, most=5)
        whole = await crawled(weft, server, most=PAGES + 1)
    assert (cut.counts.done, [(each.reason, each.count) for each in cut.not_kept]) == (5, [("links_per_page", 8)])
    assert summary(cut).splitlines()[0] == (
        f"crawl {cut.crawl.id} is done: nothing is left; 8 links were not kept; "
        "to fetch them, start a new crawl: raise traps.links_per_page (--spec-file)"
    )
    assert (whole.counts.done, whole.not_kept, whole.suspected) == (len(pages), [], 0)
    assert summary(whole).splitlines()[0] == f"crawl {whole.crawl.id} is done: nothing is left"
