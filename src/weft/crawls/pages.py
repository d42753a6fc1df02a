"""What a page says: its title, where its links lead, and what of it is kept as an item."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from weft.clock import iso
from weft.crawl_spec import CrawlSpec
from weft.crawls.charset import as_utf8
from weft.fetching.exchange import Exchange
from weft.fetching.urls import LONGEST, Spelling

HTML = (b"text/html", b"application/xhtml+xml")
LONGEST_TITLE = 1_000


@dataclass(slots=True, kw_only=True)
class Page:
    """A page that was read."""

    url: str
    status: int
    is_html: bool = False
    title: str = ""
    links: list[str] = field(default_factory=list)
    """Canonical, in order, without doubles; without those that are not to be followed."""
    links_over: int = 0
    """How many were left out, because a page may have only so many."""
    links_too_long: int = 0
    links_nofollow: int = 0
    """How many are not to be followed, where the crawl minds."""
    nofollow: bool = False
    """The page asks that none of its links be followed."""
    noindex: bool = False
    """The page asks not to be kept."""
    canonical_url: str = ""
    """What it calls its own address, where it says so."""
    fields: dict[str, Any] = field(default_factory=dict)
    """What the crawl keeps of it besides."""
    missing: tuple[str, ...] = ()
    """Fields that it must have and has not."""
    simhash: int = 0

    def item(self, fetched_at: int, *, with_links: bool = True) -> dict[str, Any]:
        """What is stored of it."""
        item: dict[str, Any] = {"url": self.url, "status": self.status, "title": self.title, **self.fields}
        if with_links:
            item["links"] = self.links
        item["fetched_at"] = iso(fetched_at)
        return item


class PageReader:
    """Reads the pages of one crawl."""

    def __init__(self, spec: CrawlSpec) -> None:
        self._spec = spec
        self._most_links = spec.traps.links_per_page
        self.spelling = Spelling(spec.traps.keep_tracking, spec.traps.drop_parameters)

    def read(self, exchange: Exchange) -> Page:
        """What the page says. Whatever it holds, this raises nothing."""
        page = Page(url=exchange.url, status=exchange.status)
        content_type = exchange.header(b"content-type")
        if not _is_html(content_type, exchange.body):
            return page
        page.is_html = True
        tree = LexborHTMLParser(as_utf8(exchange.body, content_type))
        self._read_head(page, tree, exchange)
        self._read_links(page, tree)
        return page

    def _read_head(self, page: Page, tree: LexborHTMLParser, exchange: Exchange) -> None:
        title = tree.css_first("title")
        if title is not None:
            page.title = " ".join(title.text().split())[:LONGEST_TITLE]

    def _read_links(self, page: Page, tree: LexborHTMLParser) -> None:
        hrefs = [href for node in tree.css("a[href]") if (href := _href(node))]
        links = self.spelling.resolve(page.url, hrefs)
        page.links_over = max(0, len(links) - self._most_links)
        page.links = [each for each in links[: self._most_links] if len(each) <= LONGEST]


def _is_html(content_type: bytes, body: bytes) -> bool:
    if not content_type:
        return body[:500].lstrip().lower().startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title"))
    return content_type.partition(b";")[0].strip().lower() in HTML


def _href(node: LexborNode) -> str | None:
    return node.attributes.get("href")
