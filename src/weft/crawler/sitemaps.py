"""The addresses that a sitemap lists: XML, indexes, text, RSS and Atom, gzipped or not.

A sitemap comes from strangers: no entity is ever expanded, a document type ends it, and what is beyond 50 MiB or 50,000
addresses does not count.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

LARGEST = 50 << 20
MOST = 50_000
DEEPEST = 3
"""Indexes of indexes of indexes."""
_CHUNK = 64 << 10
_ENTRIES = frozenset(("url", "sitemap", "item", "entry"))
_ADDRESSES = frozenset(("loc", "link"))
_DATES = frozenset(("lastmod", "pubDate", "updated"))


@dataclass(frozen=True, slots=True)
class SitemapEntry:
    """An address that a sitemap lists."""

    url: str
    lastmod: str = ""
    is_sitemap: bool = False


class _Enough(Exception):
    """Nothing more of this document counts."""


def read(body: bytes) -> list[SitemapEntry]:
    """What a sitemap lists, as far as it can be read."""
    data = _unzipped(body) if body[:2] == b"\x1f\x8b" else body[:LARGEST]
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return _Reading().of(data)
    return list(_lines(data))


def _unzipped(body: bytes) -> bytes:
    inflate = zlib.decompressobj(wbits=31)
    try:
        return inflate.decompress(body, LARGEST)
    except zlib.error:
        return b""


def _lines(data: bytes) -> Iterator[SitemapEntry]:
    count = 0
    for line in data.decode("utf-8-sig", "replace").splitlines():
        url = line.strip()
        if url.startswith(("http://", "https://")):
            yield SitemapEntry(url)
            count += 1
            if count >= MOST:
                return


class _Reading:
    """One pass over a document: what stands in the entry that is open, and the entries so far."""

    def __init__(self) -> None:
        self._entries: list[SitemapEntry] = []
        self._entry = self._field = ""
        self._url = self._lastmod = ""
        self._text: list[str] = []

    def of(self, data: bytes) -> list[SitemapEntry]:
        parser = expat.ParserCreate(namespace_separator=" ")
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
            raise _Enough


def _refuse(*_: Any) -> None:
    raise _Enough
