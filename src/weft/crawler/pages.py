"""Reads a page within parse limits: its title, its links, and the item that is kept of it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from itertools import islice
from sys import getsizeof
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from weft.clock import iso
from weft.crawl_spec import CrawlSpec
from weft.crawler.extraction import PageExtractor, PageHead, as_utf8, read_head, robots_directives
from weft.crawler.similarity import fingerprint_of_bytes, fingerprints
from weft.fetching.model import Exchange
from weft.fetching.urls import LONGEST_URL, Canonicalizer, key_of, origin_of

SMALL, LARGE = 16 << 10, 4 << 20
"""Bytes of a page that is always parsed, and of one that never is."""
STRIDE, WINDOW = 8 << 10, 256
DENSE = 20
"""Tags in a window that are opened and not closed."""
LONGEST_TAG = 4_000
MOST_OPEN = 3_000
"""Tags that may be open at a time, as far as one can tell without parsing."""
VOID = (
    b"<br",
    b"<img",
    b"<input",
    b"<meta",
    b"<link",
    b"<hr",
    b"<li",
    b"<p>",
    b"<p ",
    b"<td",
    b"<tr",
    b"<option",
    b"<!",
)
"""Tags that need no end, in the letters that most pages use."""

_TAG = re.compile(rb"<a\s([^<>]{1,4000})", re.IGNORECASE)
_HREF = re.compile(rb"(?:^|[\s\"'])href\s*=\s*(?:\"([^\"]*)|'([^']*)|([^\s\"'>]+))", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^<>]{0,200}>([^<]{0,2000})", re.IGNORECASE)
_BASE = re.compile(rb"<base\s([^<>]{1,4000})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SkimmedPage:
    """What a page says at first sight."""

    title: str
    base: str
    hrefs: list[str]
    more: int = 0
    """How many links may stand behind those."""


def exceeds_parse_limits(body: bytes) -> bool:
    """Whether a page may keep a parser busy; looks at a few places of it."""
    size = len(body)
    if size <= SMALL:
        return False
    if size > LARGE:
        return True
    dense, places = 0, range(random.randrange(STRIDE), size, STRIDE)
    for place in places:
        if _is_in_long_tag(body, place):
            return True
        dense += _opened(body[place : place + WINDOW]) > DENSE
    return dense * 4 > len(places) and _nests(body)


def skim(body: bytes, most_links: int) -> SkimmedPage:
    title, base = _TITLE.search(body), _BASE.search(body)
    hrefs: list[str] = []
    more = 0
    for tag in _TAG.finditer(body):
        if href := _href(tag[1]):
            if len(hrefs) == most_links:
                more = 1 + sum(body.count(opened, tag.end()) for opened in (b"<a ", b"<A "))
                break
            hrefs.append(href)
    return SkimmedPage(_text(title[1]) if title else "", _href(base[1]) if base else "", hrefs, more)


def _is_in_long_tag(body: bytes, place: int) -> bool:
    """Whether a tag began long before, and has not ended."""
    back = max(0, place - LONGEST_TAG - STRIDE)
    begin = body.rfind(b"<", back, place)
    return 0 <= begin < place - LONGEST_TAG and body.find(b">", begin, place) < 0


def _opened(part: bytes) -> int:
    """Tags that are opened and not closed in it."""
    return part.count(b"<") - 2 * part.count(b"</")


def _nests(body: bytes) -> bool:
    """Whether too many tags are open at some place, those that need no end left out."""
    is_open = 0
    for start in range(0, len(body), STRIDE):
        part = body[start : start + STRIDE]
        is_open = max(0, is_open + _opened(part) - sum(part.count(name) for name in VOID))
        if is_open > MOST_OPEN:
            return True
    return False


def _href(attributes: bytes) -> str:
    found = _HREF.search(attributes)
    return _text(next(filter(None, found.groups()), b"")) if found else ""


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return unescape(text) if "&" in text else text


ROOM = 20 << 20
"""Bytes of links that are remembered; then all are forgotten, which costs nothing but time."""
LONGEST_LINK = 500
"""Characters of a link that is worth it."""
BESIDES = 200
"""Bytes that a link takes besides its text and its address."""
WHOLE = ("http://", "https://")
"""How links begin that mean the same everywhere."""
OF_HOST = "/"
"""How those begin that mean the same on every page of a host."""
BY_PAGE = frozenset("?#")
"""How links begin that mean something else on every page."""

Link = tuple[str, int]
"""The address in its one spelling, and its key; the address is empty where a link leads nowhere on the web."""


class LinkResolver:
    """Finds where the links of pages lead."""

    def __init__(self, spelling: Canonicalizer, room: int = ROOM) -> None:
        self._spelling, self._room, self._left = spelling, room, room
        self._known: dict[str, dict[str, Link]] = {}
        """By where they mean the same: everywhere, which has no name, on a host, or in a folder."""
        self._unfollowed: set[str] = set()
        """Addresses that links lead to which nobody has taken yet; of the others, all were taken before."""

    def lead(self, base: str, hrefs: Sequence[str]) -> dict[str, int]:
        """The addresses that they lead to with their keys, in order and without doubles."""
        if self._left < 0:
            self._known, self._unfollowed, self._left = {}, set(), self._room
        host, whole, folder = self._places(base)
        found = [host.get(href) or whole.get(href) or folder.get(href) for href in hrefs]
        if None in found:
            new = self._look(base, [href for href, link in zip(hrefs, found, strict=True) if link is None])
            found = [link or new[href] for href, link in zip(hrefs, found, strict=True)]
        leads: dict[str, int] = dict(found)  # type: ignore[arg-type]
        leads.pop("", None)
        return leads

    def take(self, leads: Mapping[str, int]) -> list[str]:
        """Those addresses that may be new: they were never taken before, as far as is remembered. In order."""
        unfollowed = self._unfollowed
        new = [url for url in leads if url in unfollowed]
        unfollowed.difference_update(new)
        self._left += sum(map(getsizeof, new))
        return new

    def _places(self, base: str) -> tuple[dict[str, Link], dict[str, Link], dict[str, Link]]:
        return self._links_of(origin_of(base)), self._links_of(""), self._links_of(_folder(base))

    def _links_of(self, place: str) -> dict[str, Link]:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = {}
            self._left -= getsizeof(place) + BESIDES
        return known

    def _look(self, base: str, hrefs: Sequence[str]) -> dict[str, Link]:
        (host, whole, folder), new = self._places(base), {}
        for href, text in zip(hrefs, self._spelling.each(base, hrefs), strict=True):
            link = new[href] = (text, key_of(text)) if text else ("", 0)
            if text and text not in self._unfollowed:
                self._unfollowed.add(text)
                self._left -= getsizeof(text)
            if self._left > 0 and len(href) <= LONGEST_LINK and _is_the_same_elsewhere(href):
                place = whole if href.startswith(WHOLE) else host if href.startswith(OF_HOST) else folder
                place[href] = link
                self._left -= getsizeof(href) + getsizeof(text) + BESIDES
        return new


def _is_the_same_elsewhere(href: str) -> bool:
    """Whether a link means the same on other pages; white space before it hides how it begins."""
    return href[:1] > " " and href[0] not in BY_PAGE


def _folder(base: str) -> str:
    """What a relative link is relative to."""
    path = base.partition("?")[0]
    return path[: path.rfind("/") + 1]


HTML = (b"text/html", b"application/xhtml+xml")
LONGEST_TITLE = 1_000


@dataclass(slots=True, kw_only=True)
class ParsedPage:
    """A page that was read."""

    url: str
    status: int
    is_html: bool = False
    title: str = ""
    leads: dict[str, int] = field(default_factory=dict)
    """Where its links lead: canonical, in order, with their keys; without those that are not to be followed."""
    leads_over: dict[str, int] = field(default_factory=dict)
    """The same of those that were left out, because a page may have only so many."""
    leads_too_long: dict[str, int] = field(default_factory=dict)
    """And of those that are longer than an address may be."""
    links_unread: int = 0
    """How many were not even read: nobody knows where they lead."""
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
    """What it is like (``similarity.py``); 0: nobody has looked."""
    content: int = 0
    """What it holds exactly: its title, text and pictures; 0: nobody has looked."""
    is_heavy: bool = False
    """A parser would be busy with it for too long, so that it was only skimmed: it has a title and links."""

    @property
    def links(self) -> list[str]:
        return list(self.leads)

    @property
    def links_over(self) -> int:
        return len(self.leads_over) + self.links_unread

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
        self.spelling = Canonicalizer(spec.traps.keep_tracking, spec.traps.drop_parameters)
        self.links = LinkResolver(self.spelling)
        self._extraction = PageExtractor(spec.keeping, self.spelling)

    def read(self, exchange: Exchange, *, alike: bool = False) -> ParsedPage:
        """What the page says, with what it is like where that is asked for. Whatever it holds, this raises nothing."""
        page = ParsedPage(url=exchange.url, status=exchange.status)
        content_type = exchange.header(b"content-type")
        page.nofollow, page.noindex = _asked(exchange)
        if not _is_html(content_type, exchange.body):
            self._extraction.read_other(page, exchange.body, content_type)
            return page
        page.is_html = True
        utf8 = as_utf8(exchange.body, content_type)
        if exceeds_parse_limits(utf8):
            self._skim(page, utf8)
            page.simhash = fingerprint_of_bytes(utf8) if alike else 0
            return page
        tree = LexborHTMLParser(utf8)
        head = read_head(tree)
        self._take_head(page, head)
        self._take_links(page, tree, head.base)
        if alike:
            page.simhash, page.content = fingerprints(tree, page.title)
        if self._extraction.wants_any:
            self._extraction.read_html(page, tree, head, utf8)
        return page

    def _take_head(self, page: ParsedPage, head: PageHead) -> None:
        page.title = head.title[:LONGEST_TITLE]
        page.nofollow, page.noindex = page.nofollow or head.nofollow, page.noindex or head.noindex
        if head.canonical:
            page.canonical_url = next(iter(self.spelling.resolve(page.url, [head.canonical])), "")

    def _take_links(self, page: ParsedPage, tree: LexborHTMLParser, base: str) -> None:
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

    def _skim(self, page: ParsedPage, utf8: bytes) -> None:
        skimmed = skim(utf8, self._most_links)
        page.is_heavy, page.title = True, " ".join(skimmed.title.split())[:LONGEST_TITLE]
        page.links_unread = skimmed.more
        self._lead(page, skimmed.base, skimmed.hrefs)

    def _lead(self, page: ParsedPage, base: str, hrefs: list[str]) -> None:
        where = page.url
        if base:
            where = next(iter(self.spelling.resolve(where, [base])), where)
        leads = self.links.lead(where, hrefs)
        if len(leads) > self._most_links:
            page.leads_over = dict(islice(leads.items(), self._most_links, None))
            leads = dict(islice(leads.items(), self._most_links))
        if leads and len(max(leads, key=len)) > LONGEST_URL:
            page.leads_too_long = {url: key for url, key in leads.items() if len(url) > LONGEST_URL}
            leads = {url: key for url, key in leads.items() if len(url) <= LONGEST_URL}
        page.leads = leads


def _asked(exchange: Exchange) -> tuple[bool, bool]:
    """What the headers ask for: nofollow and noindex."""
    told = [value.decode("latin-1") for name, value in exchange.headers if name == b"x-robots-tag"]
    return robots_directives(told) if told else (False, False)


def _is_html(content_type: bytes, body: bytes) -> bool:
    if not content_type:
        return body[:500].lstrip().lower().startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title"))
    return content_type.partition(b";")[0].strip().lower() in HTML
