"""What a page says: its title, where its links lead, and what of it is kept as an item."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from weft.clock import iso
from weft.crawl_spec import CrawlSpec
from weft.crawls.charset import as_utf8
from weft.crawls.extraction import Extraction
from weft.crawls.head import Head, asks_of, read_head
from weft.crawls.heavy import is_heavy, skim
from weft.crawls.links import Links
from weft.crawls.near import fingerprint, fingerprint_of_bytes
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
    leads: dict[str, int] = field(default_factory=dict)
    """Where its links lead: canonical, in order, with their keys; without those that are not to be followed."""
    links_over: int = 0
    """How many were left out, because a page may have only so many."""
    links_too_long: int = 0
    links_nofollow: int = 0
    """How many are marked nofollow and left out, where the crawl minds."""
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
    """What it is like (``near.py``); 0: nobody has looked."""
    is_heavy: bool = False
    """A parser would be busy with it for too long, so that it was only skimmed: it has a title and links."""

    @property
    def links(self) -> list[str]:
        return list(self.leads)

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
        self._most_links = spec.traps.links_per_page
        self._minds_nofollow = spec.scope.nofollow
        self.spelling = Spelling(spec.traps.keep_tracking, spec.traps.drop_parameters)
        self.links = Links(self.spelling)
        self._extraction = Extraction(spec.keeping, self.spelling)

    def read(self, exchange: Exchange, *, alike: bool = False) -> Page:
        """What the page says, with what it is like where that is asked for. Whatever it holds, this raises nothing."""
        page = Page(url=exchange.url, status=exchange.status)
        content_type = exchange.header(b"content-type")
        page.nofollow, page.noindex = _asked(exchange)
        if not _is_html(content_type, exchange.body):
            self._extraction.read_other(page, exchange.body, content_type)
            return page
        page.is_html = True
        utf8 = as_utf8(exchange.body, content_type)
        if is_heavy(utf8):
            self._skim(page, utf8)
            page.simhash = fingerprint_of_bytes(utf8) if alike else 0
            return page
        tree = LexborHTMLParser(utf8)
        head = read_head(tree)
        self._take_head(page, head)
        self._take_links(page, tree, head.base)
        if alike:
            page.simhash = fingerprint(tree)
        if self._extraction.wants_any:
            self._extraction.read_html(page, tree, head, utf8)
        return page

    def _take_head(self, page: Page, head: Head) -> None:
        page.title = head.title[:LONGEST_TITLE]
        page.nofollow, page.noindex = page.nofollow or head.nofollow, page.noindex or head.noindex
        if head.canonical:
            page.canonical_url = next(iter(self.spelling.resolve(page.url, [head.canonical])), "")

    def _take_links(self, page: Page, tree: LexborHTMLParser, base: str) -> None:
        found = [*tree.tags("a"), *tree.tags("area")]  # the first css() costs 0.1 ms
        if not found:
            hrefs = [node.attrs.get("src") for node in (*tree.tags("frame"), *tree.tags("iframe"))]
        elif self._minds_nofollow:
            kept = [node for node in found if "nofollow" not in (node.attrs.get("rel") or "").lower().split()]
            hrefs = [node.attrs.get("href") for node in kept]
            page.links_nofollow = len(found) - len(kept)
        else:
            hrefs = [node.attrs.get("href") for node in found]  # attributes, which is a dict, takes twice the time
        self._lead(page, base, [href for href in hrefs if href])

    def _skim(self, page: Page, utf8: bytes) -> None:
        skimmed = skim(utf8, self._most_links)
        page.is_heavy, page.title = True, " ".join(skimmed.title.split())[:LONGEST_TITLE]
        self._lead(page, skimmed.base, skimmed.hrefs)

    def _lead(self, page: Page, base: str, hrefs: list[str]) -> None:
        where = page.url
        if base:
            where = next(iter(self.spelling.resolve(where, [base])), where)
        leads = self.links.lead(where, hrefs)
        if len(leads) > self._most_links:
            page.links_over = len(leads) - self._most_links
            leads = dict(islice(leads.items(), self._most_links))
        if leads and len(max(leads, key=len)) > LONGEST:
            kept = {url: key for url, key in leads.items() if len(url) <= LONGEST}
            page.links_too_long = len(leads) - len(kept)
            leads = kept
        page.leads = leads


def _asked(exchange: Exchange) -> tuple[bool, bool]:
    """What the headers ask for: nofollow and noindex."""
    told = [value.decode("latin-1") for name, value in exchange.headers if name == b"x-robots-tag"]
    return asks_of(told) if told else (False, False)


def _is_html(content_type: bytes, body: bytes) -> bool:
    if not content_type:
        return body[:500].lstrip().lower().startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title"))
    return content_type.partition(b";")[0].strip().lower() in HTML
