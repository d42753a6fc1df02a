"""Pages that would take a parser too long: huge ones, and small ones that nest or repeat attributes without end.

A parser that keeps to the HTML standard looks, for each tag, through all that are open, and for each attribute through
all of its tag: a page made for that keeps it busy for minutes. Such a page is only skimmed, which takes the same time
for each byte, whatever it is.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from html import unescape

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
class Skimmed:
    """What a page says at first sight."""

    title: str
    base: str
    hrefs: list[str]


def is_heavy(body: bytes) -> bool:
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


def skim(body: bytes, most_links: int) -> Skimmed:
    title, base = _TITLE.search(body), _BASE.search(body)
    hrefs: list[str] = []
    for tag in _TAG.finditer(body):
        if href := _href(tag[1]):
            hrefs.append(href)
            if len(hrefs) > most_links:
                break
    return Skimmed(_text(title[1]) if title else "", _href(base[1]) if base else "", hrefs)


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
