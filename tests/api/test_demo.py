"""The demo site: whole pages without a key, links that lead somewhere, and none of it without the examples."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.acting import Visitor, visiting
from tests.cases import for_each
from tests.conftest import on_sqlite
from weft.app import App
from weft.demo import site, slug

pytestmark = on_sqlite


@pytest_asyncio.fixture
async def reader(app: App) -> AsyncIterator[Visitor]:
    """Somebody without a key, at the door of a weft with examples."""
    async with visiting(app, demo=True) as visitor:
        yield visitor


async def walked(reader: Visitor, start: str) -> dict[str, str]:
    """Every page that links lead to from one of them."""
    pages: dict[str, str] = {}
    waiting = [start]
    while waiting:
        path = waiting.pop()
        answer = await reader.get(path)
        assert answer.status == 200, path
        pages[path] = answer.data.decode()
        links = set(re.findall(r'href="([^"]+)"', pages[path]))
        waiting += [link for link in links if link not in pages and link not in waiting]
    return pages


async def test_every_link_of_the_site_leads_to_a_page_of_it(reader: Visitor) -> None:
    pages = await walked(reader, "/demo/")
    assert all(path.startswith("/demo/") for path in pages)
    assert {f"/demo/author/{slug(name)}/" for name in site().authors} <= pages.keys()
    assert {f"/demo/tag/{tag}/" for tag in site().tags()} <= pages.keys()


async def test_its_pages_have_every_saying_once(reader: Visitor) -> None:
    path, found = "/demo/", []
    while path:
        text = (await reader.get(path)).data.decode()
        found += re.findall(r"<blockquote>(.*?)</blockquote>", text)
        path = next(iter(re.findall(r'rel="next" href="([^"]+)"', text)), "")
    assert len(found) == len(set(found)) == len(site().quotes) >= 24


async def test_a_tag_shows_what_has_it_and_nothing_else(reader: Visitor) -> None:
    text = (await reader.get("/demo/tag/love/")).data.decode()
    articles = re.findall(r"<article.*?</article>", text)
    assert articles
    assert all(">love</a>" in article for article in articles)


@for_each(
    "path",
    [
        "/demo/page/0/",
        "/demo/page/99/",
        "/demo/page/x/",
        "/demo/tag/nothing/",
        "/demo/author/nobody/",
        "/demo/tag/%3Cb%3E/",
    ],
)
async def test_a_page_that_is_not_there_says_so_as_a_page(reader: Visitor, path: str) -> None:
    answer = await reader.get(path)
    assert answer.status == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert b"<b>" not in answer.data


async def test_crawlers_may_read_the_site_and_nothing_else(reader: Visitor) -> None:
    answer = await reader.get("/robots.txt")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.data.decode().splitlines()
    assert lines[:4] == ["User-agent: *", "Allow: /demo/", "Disallow: /demo/maze/cellar/", "Disallow: /"]
    assert lines[4:] == [f"Sitemap: {reader.address}/demo/maze/sitemap.xml"]


async def test_the_site_runs_no_script_and_knows_light_and_dark(reader: Visitor) -> None:
    answer = await reader.get("/demo/")
    assert b"<script" not in answer.data
    assert b"prefers-color-scheme:dark" in answer.data
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


async def test_without_the_examples_there_is_no_demo_site(nobody: Visitor) -> None:
    assert (await nobody.get("/demo/")).status == (await nobody.get("/robots.txt")).status == 404
    assert b"/demo/" not in (await nobody.get("/openapi.json")).data


async def test_each_saying_is_of_an_author_whom_the_site_knows(reader: Visitor) -> None:
    for each in site().quotes:
        assert (await reader.get(f"/demo/author/{slug(each.author)}/")).status == 200
    assert {each.author for each in site().quotes} == site().authors.keys()
