"""Ordinary sites are crawled whole with the default settings: every page once, and nothing taken for a trap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.answering import Answering
from experiments.clerk import clerk_in, crawl
from tests.crawls.sites import SITES, Site, gallery
from weft.crawl_spec import CrawlSpec, OutputSpec, PolitenessSpec, TrapSpec
from weft.ports import SKIPPED


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


async def test_what_was_skipped_on_suspicion_is_counted_once_and_fetched_when_it_is_put_back_in_line(
    tmp_path: Path, database_url: str
) -> None:
    site = gallery()
    async with Answering(site.answer).serving() as server:
        spec = CrawlSpec(
            urls=(server.url(),),
            follow=True,
            politeness=PolitenessSpec(delay_seconds=0.0),
            keeping=OutputSpec(warc=False),
            traps=TrapSpec(level="strict"),
        )
        async with clerk_in(tmp_path, database_url, spec) as clerk:
            await crawl(tmp_path, spec)
            counts = await clerk.frontier.counts(1)
            assert counts.skipped == clerk.skipped()["near_duplicates"] > 200
            while counts.skipped:  # what is found only now may be suspected as well
                assert await clerk.frontier.requeue(1, SKIPPED) == counts.skipped
                await crawl(tmp_path, spec)
                before, counts = counts, await clerk.frontier.counts(1)
                assert counts.done >= before.done + before.skipped
    assert (counts.done, counts.failed) == (len(site.pages), 0)
    assert len({item["url"] for item in clerk.items}) == len(clerk.items) == len(site.pages)


@pytest.mark.parametrize("made", SITES, ids=lambda made: made.__name__)
async def test_every_page_of_an_ordinary_site_is_fetched_once(
    made: Callable[[], Site], tmp_path: Path, database_url: str
) -> None:
    site = made()
    async with Answering(site.answer).serving() as server:
        spec = CrawlSpec(
            urls=(server.url(),),
            follow=True,
            politeness=PolitenessSpec(delay_seconds=0.0),
            keeping=OutputSpec(warc=False),
        )
        async with clerk_in(tmp_path, database_url, spec) as clerk:
            await crawl(tmp_path, spec)
            kept = [item["url"].partition(f":{server.port}")[2] for item in clerk.items]
            counts = await clerk.frontier.counts(1)
    assert sorted(kept) == sorted(site.pages)
    assert {path: count for path, count in Counter(server.paths()).items() if path in site.pages and count > 1} == {}
    assert (counts.queued, counts.leased, counts.skipped) == (0, 0, 0)
    assert {each.reason for each in clerk.skips if each.is_trap} == set()
