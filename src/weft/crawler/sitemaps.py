"""The addresses that a sitemap lists: XML, indexes, text, RSS and Atom, gzipped or not.

A sitemap comes from strangers: no entity is ever expanded, a document type ends it, and what is beyond 50 MiB or 50,000
addresses does not count.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any
from xml.parsers import expat

LARGEST = 50 << 20
MOST = 50_000
DEEPEST = 3
"""Indexes of indexes of indexes."""
_CHUNK = 64 << 10
_ENTRIES = frozenset(("url", "sitemap", "item", "entry"))
_ADDRESSES = frozenset(("loc", "link"))
_CLOSED = re.compile(rb"</(?:[A-Za-z0-9_.-]{1,20}:)?(?:url|sitemap|item|entry)\s{0,9}>", re.ASCII)
_DATES = frozenset(("lastmod", "pubDate", "updated"))


@dataclass(frozen=True, slots=True)
class SitemapEntry:
    """An address that a sitemap lists."""

    url: str
    lastmod: str = ""
    is_sitemap: bool = False


@dataclass(frozen=True, slots=True)
class SitemapListing:
    """What a sitemap lists, as far as it is read."""

    entries: list[SitemapEntry]
    over: int = 0
    """How many more there are beyond what is read, at least."""


class _Enough(Exception):
    """Nothing more of this document counts."""


def read(body: bytes) -> SitemapListing:
    """What a sitemap lists, as far as it can be read."""
    data, is_cut = _unzipped(body) if body[:2] == b"\x1f\x8b" else (body[:LARGEST], len(body) > LARGEST)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        reading = _Reading()
        entries = reading.of(data)
        over = sum(1 for _ in _CLOSED.finditer(data, reading.ended_at)) if len(entries) >= MOST else 0
    else:
        urls = _urls(data)
        entries, over = [SitemapEntry(url) for url in islice(urls, MOST)], sum(1 for _ in urls)
    return SitemapListing(entries, max(over, int(is_cut)))


def _unzipped(body: bytes) -> tuple[bytes, bool]:
    """As much as may be read, and whether there is more."""
    inflate = zlib.decompressobj(wbits=31)
    try:
        return inflate.decompress(body, LARGEST), bool(inflate.unconsumed_tail)
    except zlib.error:
        return b"", False


def _urls(data: bytes) -> Iterator[str]:
    for line in data.decode("utf-8-sig", "replace").splitlines():
        url = line.strip()
        if url.startswith(("http://", "https://")):
            yield url


class _Reading:
    """One pass over a document: what stands in the entry that is open, and the entries so far."""

    def __init__(self) -> None:
        self._entries: list[SitemapEntry] = []
        self._entry = self._field = ""
        self._url = self._lastmod = ""
        self._text: list[str] = []
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self.ended_at = 0
        """Behind the last entry that was read."""

    def of(self, data: bytes) -> list[SitemapEntry]:
        parser = self._parser
        parser.StartElementHandler, parser.EndElementHandler = self._starts, self._ends
        parser.CharacterDataHandler = self._says
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse
        try:
            for start in range(0, len(data), _CHUNK):
                parser.Parse(data[start : start + _CHUNK], False)
            parser.Parse(b"", True)
        except (expat.ExpatError, _Enough, ValueError, LookupError):
            pass  # what was read before still counts
        return self._entries

    def _starts(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        if local in _ENTRIES:
            self._entry, self._url, self._lastmod = local, "", ""
        elif self._entry:
            self._field, self._text = local, []
            if local == "link" and attributes.get("href") and attributes.get("rel", "alternate") == "alternate":
                self._url = self._url or attributes["href"]

    def _says(self, text: str) -> None:
        if self._field:
            self._text.append(text)

    def _ends(self, name: str) -> None:
        local = name.rpartition(" ")[2]
        if local == self._entry:
            self._add()
        elif local == self._field:
            said = "".join(self._text).strip()
            if local in _ADDRESSES:
                self._url = self._url or said
            elif local in _DATES:
                self._lastmod = said
            self._field = ""

    def _add(self) -> None:
        if self._url:
            self._entries.append(SitemapEntry(self._url, self._lastmod, self._entry == "sitemap"))
        self._entry = ""
        if len(self._entries) >= MOST:
            self.ended_at = self._parser.CurrentByteIndex + 1
            raise _Enough


def _refuse(*_: Any) -> None:
    raise _Enough
