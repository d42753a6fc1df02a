"""One spider in several runs on one frontier: each page once in all, whatever happens to a run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.agent import site as sites
from tests.agent.sharing import CRAWL, Shared, shared
from tests.agent.site import Site
from tests.agent.spiders import write_project
from tests.conftest import sqlite_copy
from tests.waiting import eventually
from weft import clock
from weft.db.database import open_database
from weft.ports import DONE, FAILED, SKIPPED

SPIDERS = """
import dataclasses

import scrapy


@dataclasses.dataclass
class Way:
    steps: tuple


class Walker(scrapy.Spider):
    name = "walker"

    def __init__(self, url, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [url]

    def parse(self, response, way=None):
        way = way or Way(())
        n = int(response.css("title::text").get())
        yield {"n": n, "steps": len(way.steps), "depth": response.meta["depth"]}
        for link in response.css("a"):
            yield response.follow(link, cb_kwargs={"way": Way((*way.steps, n))}, priority=n)


class Closure(Walker):
    name = "closure"

    def parse(self, response):
        n = int(response.css("title::text").get())
        yield {"n": n}
        for link in response.css("a"):
            yield response.follow(link, callback=lambda response: self.parse(response))


class Shy:
    def process_request(self, request):
        if request.url.endswith("/7"):
            raise scrapy.exceptions.IgnoreRequest("seven")


class Odd(Walker):
    name = "odd"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"shop.spiders.all.Shy": 500}}

    def parse(self, response):
        n = int(response.css("title::text").get())
        if n == 8:
            raise LookupError("this page is strange")
        yield {"n": n, "retries": response.meta.get("retry_times", 0)}
        yield response.follow("/page/1", dont_filter=True, callback=self.again) if n == 3 else None
        for link in response.css("a"):
            yield response.follow(link, meta=response.meta)
        yield scrapy.Request("http://127.0.0.9:9/closed", meta=response.meta)

    def again(self, response):
        yield {"n": int(response.css("title::text").get()), "again": True}
"""

PAGES = 80


@pytest.fixture(scope="module")
def walkers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("walkers"), spiders=SPIDERS)


@pytest_asyncio.fixture
async def sharing(sqlite_template: Path, walkers: Path, tmp_path: Path) -> AsyncIterator[Shared]:
    db = open_database(sqlite_copy(sqlite_template, tmp_path))
    async with shared(db, walkers, tmp_path / "runs") as sharing:
        yield sharing
    db.close()


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    async with sites.serving(PAGES) as site:
        yield site


def fetched(*runs: object) -> list[int]:
    return sorted(item["n"] for run in runs for item in run.items)  # type: ignore[attr-defined]


async def test_two_runs_of_a_spider_fetch_each_page_once_in_all(sharing: Shared, site: Site) -> None:
    order: dict[str, Any] = {"args": {"url": site.url(0)}, "settings": {"DOWNLOAD_DELAY": 0.1, "FRONTIER_HOSTS": 2}}
    sharing.starting = {"one", "two"}
    one, two = await asyncio.gather(sharing.run("one", **order), sharing.run("two", **order))

    assert (one.exit_code, two.exit_code) == (0, 0), (one.output, two.output)
    assert fetched(one, two) == list(range(PAGES))
    assert set(site.asked.values()) == {1}
    assert one.items
    assert two.items
    assert all(item["steps"] == item["depth"] for item in (*one.items, *two.items))
    assert (one.end["reason"], two.end["reason"]) == ("finished", "finished")
    counts = await sharing.counts()
    assert (counts.done, counts.queued, counts.leased) == (PAGES, 0, 0)


async def test_a_run_that_holds_every_host_gives_some_to_one_that_has_none(sharing: Shared, site: Site) -> None:
    site.children = PAGES
    pace = {"FRONTIER_HOSTS": 4, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "DOWNLOAD_DELAY": 0.2}
    order: dict[str, Any] = {"args": {"url": site.url(0)}, "settings": pace}
    first, process = await sharing.begin("first", **order)
    await eventually(lambda: len(site.asked) > 4)
    site.open.clear()
    await eventually(sharing.all_are_given)
    second, others = await sharing.begin("second", **order)
    await eventually(lambda: "second" in sharing.hungry)
    site.open.set()
    await sharing.end(first, process)
    await sharing.end(second, others)

    assert first.stats["stats"]["frontier/hosts_shared"] >= 2
    assert second.items
    assert fetched(first, second) == list(range(PAGES))
    assert set(site.asked.values()) == {1}


async def test_a_run_that_is_killed_loses_nothing(sharing: Shared, site: Site) -> None:
    order: dict[str, Any] = {"args": {"url": site.url(0)}, "settings": {"FRONTIER_LEASE_SECONDS": 1.0}}
    site.open.clear()
    killed, process = await sharing.begin("killed", **order)
    await eventually(lambda: site.asked)
    other, others = await sharing.begin("other", **order)
    process.kill()
    await sharing.end(killed, process)
    site.open.set()
    await sharing.end(other, others)

    assert fetched(other) == list(range(PAGES))
    assert site.asked[0] == 2
    assert sum(site.asked.values()) == PAGES + 1


async def test_a_run_that_is_stopped_is_gone_on_with_by_the_next(sharing: Shared, site: Site) -> None:
    slow = {"DOWNLOAD_DELAY": 0.2}
    stopped, process = await sharing.begin("stopped", args={"url": site.url(0)}, settings=slow)
    await eventually(lambda: len(site.asked) > 5)
    process.send_signal(signal.SIGTERM)
    await sharing.end(stopped, process)
    left = await sharing.counts()
    next_one = await sharing.run("next", args={"url": site.url(0)})

    assert stopped.end["reason"] == "shutdown"
    assert left.leased == 0
    assert 0 < left.done < PAGES
    assert fetched(stopped, next_one) == list(range(PAGES))
    assert set(site.asked.values()) == {1}


async def test_retries_redirects_and_errors_are_told_to_the_frontier(sharing: Shared, site: Site) -> None:
    site.pages = 10
    site.failing = {4: 1, 5: 9}
    site.moved = {6}
    run = await sharing.run("odd", "odd", args={"url": site.url(0)})

    retries = {item["n"]: item["retries"] for item in run.items if "retries" in item}
    assert retries == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 6: 0, 9: 0}
    assert [item["n"] for item in run.items if "again" in item] == [1]
    assert {n: times for n, times in site.asked.items() if times > 1} == {1: 2, 4: 2, 5: 3}
    told = {known.url.rsplit("/", 1)[1]: known for known in await sharing.frontier.urls(CRAWL)}
    assert (told["4"].state, told["4"].status) == (DONE, 200)
    assert (told["5"].state, told["5"].reason) == (FAILED, "status 503")
    assert (told["6"].state, told["6"].status) == (DONE, 200)
    assert (told["7"].state, told["7"].reason) == (SKIPPED, "ignored by the spider's own rules")
    assert (told["8"].state, told["8"].reason) == (FAILED, "LookupError in its callback")
    assert (told["closed"].state, told["closed"].reason) == (FAILED, "no answer")


async def test_no_run_asks_a_host_before_the_moment_that_retry_after_names(sharing: Shared, site: Site) -> None:
    site.pages, site.failing, site.retry_after = 40, {5: 1}, "3"
    pace = {"CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    run = await sharing.run("one", args={"url": site.url(0)}, settings=pace)

    assert fetched(run) == list(range(40))
    [(host, refused_at)] = site.refused_at
    after = [at - refused_at for asked, at in site.asked_at if asked == host and at > refused_at]
    assert min(after) >= 3
    assert run.stats["stats"]["frontier/hosts_put_off"] == 1


async def test_a_host_that_is_to_be_left_alone_for_long_is_given_back(sharing: Shared, site: Site) -> None:
    site.pages, site.failing, site.retry_after = 40, {5: 1}, "600"
    run, process = await sharing.begin("one", args={"url": site.url(0)}, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 1})

    async def is_given_back() -> bool:
        hosts = {each.host: each for each in await sharing.frontier.hosts(CRAWL)}
        rests = hosts.get(f"127.0.0.2:{site.port}")
        return rests is not None and not rests.holder and rests.next_at > clock.now() + 500 * clock.SECOND

    await eventually(is_given_back)
    process.terminate()
    await sharing.end(run, process)
    assert site.asked[5] == 1


async def test_requests_that_are_no_text_are_made_by_the_run_that_found_them(sharing: Shared, site: Site) -> None:
    site.pages = 13
    run = await sharing.run("closure", "closure", args={"url": site.url(0)})

    assert fetched(run) == list(range(13))
    assert set(site.asked.values()) == {1}
    assert run.stats["stats"]["frontier/own"] == 12
    assert sum("made by this run alone" in record["message"] for record in run.records) == 1
