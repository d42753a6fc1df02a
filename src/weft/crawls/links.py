"""Where links lead, remembered: the pages of a site link to the same places again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import getsizeof

from weft.fetching.urls import Spelling, key_of, origin_of

ROOM = 20 << 20
"""Bytes of links that are remembered; then all are forgotten, which costs nothing but time."""
LONGEST = 500
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


class Links:
    """Finds where the links of pages lead."""

    def __init__(self, spelling: Spelling, room: int = ROOM) -> None:
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
            if self._left > 0 and len(href) <= LONGEST and _is_the_same_elsewhere(href):
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
