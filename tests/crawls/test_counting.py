"""Counts are told again only as long as they can be true."""

from __future__ import annotations

from dataclasses import replace

from tests.conftest import on_sqlite
from tests.crawls.steering import Share, a_crawl
from weft.app import App
from weft.crawls.crawls import FRESH_SECONDS, CountCache

pytestmark = on_sqlite


async def test_a_crawl_that_goes_on_is_counted_again_after_a_moment(app: App) -> None:
    now = [0.0]
    counting, crawl = CountCache(app.frontier, lambda: now[0]), await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.fetch(pages=2)
    assert (await counting.of(crawl)).done == 2
    await app.crawls.feed(crawl.id, ["https://site.example/more"])
    assert (await counting.of(crawl)).queued == 0
    now[0] += FRESH_SECONDS
    assert (await counting.of(crawl)).queued == 1


async def test_a_crawl_that_is_done_is_counted_once_until_it_goes_on(app: App) -> None:
    now = [0.0]
    counting, crawl = CountCache(app.frontier, lambda: now[0]), await a_crawl(app)
    done = replace(crawl, state="done", ended_at=7)
    await counting.of(done)
    await app.crawls.feed(crawl.id, ["https://site.example/more"])
    now[0] += 3600
    assert (await counting.of(done)).queued == 0
    assert (await counting.of(crawl)).queued == 1
    now[0] += 3600
    assert (await counting.of(replace(done, ended_at=8))).queued == 1
