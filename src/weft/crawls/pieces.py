"""Questions that are too long to be asked at once, in pieces: what is found and the items go ahead of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from weft.crawl_ports import Found, Turn
from weft.crawls.model import CrawlTurn, Question

T = TypeVar("T")

BESIDES = 100
"""Bytes of an address besides its texts."""


def in_pieces(question: Question, items: bytes, most: int) -> Iterator[tuple[Question, bytes]]:
    """The question with its items, of at most so many bytes each; the last piece has what became of the pages.

    It keeps a part of what is fed to another crawl as well, because where that is not taken neither is the rest.
    """
    asked = question.asked
    if asked is not None:
        *found, last_found = _cut(asked.turn.found, _weight_of_found, most)
        *feed, last_feed = _cut(asked.feed, _weight, most)
        for some in found:
            yield Question(CrawlTurn(Turn(found=some), crawl=asked.crawl)), b""
        for urls in feed:
            yield Question(CrawlTurn(feed=urls, crawl=asked.crawl)), b""
        if found or feed:
            rest = replace(asked, turn=replace(asked.turn, found=last_found), feed=last_feed)
            question = replace(question, asked=rest)
    while len(items) > most:
        cut = items.rfind(b"\n", 0, most) + 1 or items.find(b"\n") + 1
        yield Question(first=question.first), items[:cut]
        question = replace(question, first=question.first + items.count(b"\n", 0, cut))
        items = items[cut:]
    yield question, items


def _cut(values: list[T], weight: Callable[[T], int], most: int) -> list[list[T]]:
    """In order, in lists that are not too heavy; there is always one."""
    pieces: list[list[T]] = [[]]
    size = 0
    for value in values:
        weighs = weight(value)
        if pieces[-1] and size + weighs > most:
            pieces.append([])
            size = 0
        pieces[-1].append(value)
        size += weighs
    return pieces


def _weight(url: str) -> int:
    return len(url) + BESIDES


def _weight_of_found(found: Found) -> int:
    return len(found.url) + len(found.host) + len(found.data) + BESIDES
