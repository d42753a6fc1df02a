"""Ordinary sites are crawled whole with the default settings: every page once, and nothing taken for a trap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.answering import Answering, Asked, Said
from experiments.clerk import clerk_in, crawl
from tests.crawls.sites import SITES, Site, gallery, page, text
from weft.crawl_spec import CrawlSpec, FetchingSpec, OutputSpec, PolitenessSpec, TrapSpec
from weft.crawler.sitemaps import DEEPEST, MOST
from weft.fetching.urls import LONGEST_URL
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


async def test_links_that_a_limit_drops_are_counted_once_and_only_where_a_page_of_the_site_may_be_missing(
    tmp_path: Path, database_url: str
) -> None:
    """Two lists have the same links, of which the start has some besides and some lie elsewhere."""
    listed = [f"/p/{number}" for number in range(1, 38)]
    others = [f"http://elsewhere.example/{number}" for number in range(3)]
    long = "/" + "a" * LONGEST_URL
    pages = {
        "/": page("Start", "<p>Start.", ["/list/1", "/list/2", *listed[30:]]),
        "/list/1": page("One", "<p>One.", [long, *listed, *others]),
        "/list/2": page("Two", "<p>Two.", [long, *listed, *others]),
        **{path: page(path, f"<p>{text(path)}", [long]) for path in listed},
    }
    async with Answering(Site("lists", pages).answer).serving() as server:
        spec = CrawlSpec(
            urls=(server.url(),),
            follow=True,
            politeness=PolitenessSpec(delay_seconds=0.0),
            fetching=FetchingSpec(at_once=1),
            keeping=OutputSpec(warc=False),
            traps=TrapSpec(links_per_page=11),
        )
        async with clerk_in(tmp_path, database_url, spec) as clerk:
            await crawl(tmp_path, spec)
            counts, skipped = await clerk.frontier.counts(1), clerk.skipped()
    assert counts.done == len(pages) - 21
    assert skipped == {"links_per_page": 21, "link_length": 1, "scope": 3}


async def test_what_sitemaps_list_beyond_what_is_read_of_them_is_counted(tmp_path: Path, database_url: str) -> None:
    """An index leads to the next, one further than is followed, and the first to a list that is too long."""

    def answer(asked: Asked) -> Said:
        if asked.path == "/long.txt":
            return Said(body=b"http://elsewhere.example/\n" * (MOST + 2))
        entries = [f"/index{int(asked.path[6]) + 1}.xml", *(["/long.txt"] if asked.path == "/index1.xml" else [])]
        listed = "".join(f"<sitemap><loc>{server.url(entry)}</loc></sitemap>" for entry in entries)
        return (
            Said(404) if asked.path == "/robots.txt" else Said(body=f"<sitemapindex>{listed}</sitemapindex>".encode())
        )

    async with Answering(answer).serving() as server:
        spec = CrawlSpec(
            sitemaps=(server.url("/index1.xml"),),
            politeness=PolitenessSpec(delay_seconds=0.0, robots=False),
            keeping=OutputSpec(warc=False),
        )
        async with clerk_in(tmp_path, database_url, spec) as clerk:
            await crawl(tmp_path, spec)
            skipped = clerk.skipped()
    assert sorted(set(server.paths())) == [*(f"/index{number}.xml" for number in range(1, DEEPEST + 1)), "/long.txt"]
    assert skipped == {"sitemap_limit": 1 + 2, "sitemap_host": MOST}


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
