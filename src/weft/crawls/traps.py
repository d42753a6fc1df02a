"""Places of a site that would never end: addresses that grow, repeat or count on, and pages that are all alike.

What is refused has a reason and, where they have one in common, a pattern. All of it is bounded: of the patterns that a
process knows, those that it has not met for the longest time are forgotten.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.crawl_spec import CrawlSpec
from weft.crawls.near import are_alike
from weft.crawls.patterns import Census, may_have_years, pattern_of, years_of
from weft.crawls.soft404 import NoSuchPages
from weft.fetching.urls import key_of

if TYPE_CHECKING:
    from weft.crawls.pages import Page

MOST_PATTERNS = 4_096
MOST_STREAKS = 2_048
MOST_TRAPS = 2_048
YEARS_AHEAD = 2
"""A calendar may look so far into the future."""
PROVEN = 20
"""So many pages of a pattern that were not alike, and it is looked at less often."""
SELDOM = 16
LISTING_FACTOR = 100
"""So many times more addresses may differ in one part of their path alone: a shop has one for each of its things."""
FOLDER_FACTOR, HOST_FACTOR = 5, 10
"""So many times more pages in a row may be alike in a folder, where they have no pattern, and on a host."""

Refusal = tuple[str, str]
"""A reason, and what the refused addresses have in common."""


@dataclass(slots=True)
class Streak:
    """Pages one after another that were alike."""

    last: int = 0
    length: int = 0
    different: int = 0
    passed: int = 0

    def saw(self, simhash: int) -> int:
        """How many in a row are alike by now."""
        if self.last and are_alike(self.last, simhash):
            self.length += 1
        else:
            self.length, self.different = 1, self.different + 1
        self.last = simhash
        return self.length

    def is_due(self) -> bool:
        """Whether the next page is worth a look."""
        self.passed += 1
        return self.different < PROVEN or self.length > 1 or self.passed % SELDOM == 0


@dataclass(slots=True)
class Traps:
    """What one process knows of the traps of a crawl."""

    spec: CrawlSpec
    _counts: dict[str, Census] = field(default_factory=dict)
    _streaks: dict[str, Streak] = field(default_factory=dict)
    _known: dict[str, None] = field(default_factory=dict)
    """Patterns and folders whose pages were all alike."""
    _nowhere: NoSuchPages = field(default_factory=NoSuchPages)
    _last_year: int = field(default_factory=lambda: time.gmtime().tm_year + YEARS_AHEAD)

    def refuses(self, url: str) -> Refusal | None:
        """Why an address that is new is not fetched, and the pattern; None: it may be. Each is asked for once."""
        traps = self.spec.traps
        if len(url) > traps.url_length:
            return "url_length", ""
        _, _, host, path = url.split("/", 3)
        segments = path.partition("?")[0].split("/")
        if len(segments) > traps.segments:
            return "segments", ""
        if len(segments) > traps.repeats and (again := _repeated(segments, traps.repeats)):
            return "repeats", again
        group, most = _group(path)
        if self._known and f"{host}/{group}" in self._known:
            return "near_duplicates", f"/{group}"
        if most != 1:
            return None
        if may_have_years(group) and any(year > self._last_year for year in years_of(f"/{path}")):
            return "calendar", f"/{group}"
        return self._counted(host, group, url)

    def trap_of(self, url: str) -> Refusal | None:
        """Why an address that was let in is not fetched after all: its pattern has turned out to be a trap."""
        if not self._known:
            return None
        _, _, host, path = url.split("/", 3)
        group, _ = _group(path)
        return ("near_duplicates", f"/{group}") if f"{host}/{group}" in self._known else None

    def looks_at(self, url: str) -> bool:
        """Whether the page at this address should be compared with others: always at first, seldom later."""
        if not self.spec.traps.near_duplicates:
            return False
        _, _, host, path = url.split("/", 3)
        return self._streak(f"{host}/{_group(path)[0]}").is_due()

    def saw(self, url: str, page: Page) -> Refusal | None:
        """Take a page that was fetched; why it is not kept, and nothing that it links to followed."""
        most, simhash = self.spec.traps.near_duplicates, page.simhash
        if not simhash or not most:
            return None
        _, _, host, path = url.split("/", 3)
        group, factor = _group(path)
        alike, on_host = self._streak(f"{host}/{group}").saw(simhash), self._streak(host).saw(simhash)
        if alike > most * factor or on_host > most * HOST_FACTOR:
            self._remember(f"{host}/{group}")
            return "near_duplicates", f"/{group}"
        return ("soft_404", "") if self.spec.traps.soft_404 and self._nowhere.is_like(host, simhash) else None

    def _counted(self, host: str, pattern: str, url: str) -> Refusal | None:
        most = self.spec.traps.pages_per_pattern * (LISTING_FACTOR if _is_listing(pattern) else 1)
        if not most:
            return None
        name = f"{host}/{pattern}"
        census = self._counts.pop(name, None)
        if census is None:
            census = Census(most)
            if len(self._counts) >= MOST_PATTERNS:
                del self._counts[next(iter(self._counts))]
        self._counts[name] = census
        if census.is_full:  # one of those that were let in may be asked for again: it is in line already
            return "pattern", f"/{pattern}"
        census.add(key_of(url))
        return None

    def _streak(self, name: str) -> Streak:
        streak = self._streaks.pop(name, None)
        if streak is None:
            streak = Streak()
            if len(self._streaks) >= MOST_STREAKS:
                del self._streaks[next(iter(self._streaks))]
        self._streaks[name] = streak
        return streak

    def _remember(self, name: str) -> None:
        if len(self._known) >= MOST_TRAPS:
            del self._known[next(iter(self._known))]
        self._known[name] = None

    @property
    def no_such_pages(self) -> NoSuchPages:
        """What hosts answer for pages that they do not have."""
        return self._nowhere


def _group(path: str) -> tuple[str, int]:
    """What an address has in common with others, and how much more of that there may be: a pattern, else a folder."""
    pattern = pattern_of(path)
    if pattern != path:
        return pattern, 1
    folder = path.partition("?")[0].rpartition("/")[0]
    return (f"{folder}/…" if folder else "…"), FOLDER_FACTOR


def _is_listing(pattern: str) -> bool:
    """Whether one part of the path varies, and nothing else."""
    return pattern.count("{") == 1 and "?" not in pattern


def _repeated(segments: list[str], most: int) -> str:
    """A segment that stands in a path too often, as a pattern."""
    if len(set(segments)) + most > len(segments):
        return ""
    segment, times = Counter(segments).most_common(1)[0]
    return f"/{segment}/…/{segment}" if times > most else ""
