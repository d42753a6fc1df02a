"""Detects crawler traps: URLs that grow, repeat or count without end, and pages that are all alike.

That pages are alike proves nothing: those of a gallery are. It takes a second sign that there is no end: an address
that nobody has made is answered with such a page as well, or all of them hold exactly the same. What is refused has a
reason and, where they have one in common, a pattern. All of it is bounded: of the patterns that a process knows, those
that it has not met for the longest time are forgotten.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.crawl_spec import CrawlSpec
from weft.crawler.similarity import (
    PatternCounter,
    Soft404Pages,
    are_alike,
    invented_url,
    may_have_years,
    missing_url_in,
    pattern_of,
    without_own_url,
    years_of,
)
from weft.fetching.urls import key_of

if TYPE_CHECKING:
    from weft.crawler.pages import ParsedPage

MOST_PATTERNS = 4_096
MOST_STREAKS = 2_048
MOST_TRAPS = 2_048
YEARS_AHEAD = 2
"""A calendar may look so far into the future."""
FIRST_YEAR, MOST_YEARS_AHEAD = 1_900, 100
"""What is outside of these is a number, and no year."""
PROVEN = 20
"""So many pages of a pattern that were not alike, and it is looked at less often."""
SELDOM = 16
LISTING_FACTOR = 100
"""So many times more addresses may differ in one part of their path alone: a shop has one for each of its things."""
FOLDER_FACTOR, HOST_FACTOR = 5, 10
"""So many times more pages in a row may be alike in a folder, where they have no pattern, and on a host."""
PROBE_AGAIN = 4
"""Where a pattern is found to have an end, it is looked at again when so many times more pages were alike."""
ENDLESS_PATTERNS = 3
"""A host with so many patterns that have no end, in a row of pages that are alike, is not asked about each."""
MOST_PROBES = 100
"""That wait, of a host."""

TrapReason = tuple[str, str]
"""A reason, and what the refused addresses have in common."""


@dataclass(slots=True)
class SimilarPages:
    """Pages one after another that were alike."""

    last: int = 0
    content: int = 0
    length: int = 0
    same: int = 0
    """How many in a row held exactly what the one before them did."""
    different: int = 0
    passed: int = 0
    first_path: str = ""
    last_path: str = ""
    probed_path: str = ""
    """The last before an address was made up."""
    probed_at: int = 0
    """How long it was when an address was last made up for it."""
    endless: int = 0
    """How many patterns of it, or of the host, were found to have no end."""

    def saw(self, page: ParsedPage, path: str) -> None:
        if self.last and are_alike(self.last, page.simhash):
            self.length += 1
            self.same = self.same + 1 if page.content and page.content == self.content else 0
        else:
            self.length, self.different, self.first_path = 1, self.different + 1, path
            self.same = self.probed_at = self.endless = 0
        self.last, self.content, self.last_path = page.simhash, page.content, path

    def is_due(self) -> bool:
        """Whether the next page is worth a look."""
        self.passed += 1
        return self.different < PROVEN or self.length > 1 or self.passed % SELDOM == 0

    def wants_probe(self) -> bool:
        """Whether it has grown long enough to make up an address for it, and remember that."""
        if self.probed_at and self.length < self.probed_at * PROBE_AGAIN:
            return False
        self.probed_at = self.length
        return True


@dataclass(slots=True)
class TrapDetector:
    """What one process knows of the traps of a crawl."""

    spec: CrawlSpec
    _counts: dict[str, PatternCounter] = field(default_factory=dict)
    _streaks: dict[str, SimilarPages] = field(default_factory=dict)
    _known: dict[str, None] = field(default_factory=dict)
    """Patterns and folders whose pages were all alike."""
    _no_calendars: dict[str, None] = field(default_factory=dict)
    """Patterns that look like dates and have other numbers as well."""
    _probes: dict[str, dict[str, None]] = field(default_factory=dict)
    """Patterns and folders of each host for which an address is to be made up."""
    _nowhere: Soft404Pages = field(default_factory=Soft404Pages)
    _last_year: int = field(default_factory=lambda: time.gmtime().tm_year + YEARS_AHEAD)

    def refuses(self, url: str, found_on: str = "", *, was_suspected: bool = False) -> TrapReason | None:
        """Why an address that is new is not fetched, and the pattern; None: it may be. Each is asked for once.

        ``found_on`` is the page that links to it, and ``was_suspected`` says that somebody has put that back in line.
        """
        traps = self.spec.traps
        if traps.level == "off":
            return None
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
        if may_have_years(group) and self._is_calendar(host, group, path, found_on, was_suspected):
            return "calendar", f"/{group}"
        return self._counted(host, group, url)

    def trap_of(self, url: str) -> TrapReason | None:
        """Why an address that was let in is not fetched after all: its pattern has turned out to be a trap."""
        if not self._known:
            return None
        _, _, host, path = url.split("/", 3)
        group, _ = _group(path)
        return ("near_duplicates", f"/{group}") if f"{host}/{group}" in self._known else None

    def looks_at(self, url: str) -> bool:
        """Whether the page at this address should be compared with others: always at first, seldom later."""
        if not self.spec.traps.near_duplicates or self.spec.traps.level == "off":
            return False
        _, _, host, path = url.split("/", 3)
        return self._streak(f"{host}/{_group(path)[0]}").is_due()

    def saw(self, url: str, page: ParsedPage) -> TrapReason | None:
        """Take a page that was fetched; why it is not kept, and nothing that it links to followed."""
        traps, simhash = self.spec.traps, page.simhash
        most = traps.near_duplicates
        if not simhash or not most or traps.level == "off":
            return None
        _, _, host, path = url.split("/", 3)
        group, factor = _group(path)
        name = f"{host}/{group}"
        streak, on_host = self._streak(name), self._streak(host)
        streak.saw(page, path)
        on_host.saw(page, path)
        if streak.length > most * factor:
            has_no_end = traps.level == "strict" or bool(streak.endless) or streak.same >= most * factor
        elif on_host.length > most * HOST_FACTOR:
            has_no_end = traps.level == "strict" or on_host.endless >= ENDLESS_PATTERNS
        else:
            return self._soft_404(host, page)
        if has_no_end:
            self._remember(name)
            return "near_duplicates", f"/{group}"
        if streak.wants_probe():
            waiting = self._probes.setdefault(host, {})
            if len(waiting) < MOST_PROBES:
                waiting[name] = None
        return self._soft_404(host, page)

    def _soft_404(self, host: str, page: ParsedPage) -> TrapReason | None:
        is_one = self.spec.traps.soft_404 and self._nowhere.is_like(host, page.simhash, page.title)
        return ("soft_404", "") if is_one else None

    def probe(self, host: str) -> tuple[str, str] | None:
        """A pattern or folder of a host that may have no end, and a path in it that nobody has made; None: there is
        none. What comes back for it goes to ``probed``."""
        waiting = self._probes.get(host)
        if not waiting:
            return None
        name = next(iter(waiting))
        del waiting[name]
        if not waiting:
            del self._probes[host]
        streak = self._streak(name)
        streak.probed_path, pattern = streak.last_path, name.removeprefix(f"{host}/")
        if _group(streak.last_path)[1] != 1:
            return name, missing_url_in(streak.last_path)
        has_years = may_have_years(pattern) and name not in self._no_calendars
        return name, invented_url(streak.first_path, streak.last_path, has_years=has_years)

    def without_own_url(self, name: str, path: str, body: bytes) -> bytes:
        """What came back for a path that was made up, without what only says which path that was."""
        streak = self._streaks.get(name)
        return without_own_url(body, path, streak.probed_path) if streak is not None else body

    def probed(self, name: str, status: int, simhash: int) -> None:
        """What came back for a path that was made up. A page like the others: there are as many as one asks for."""
        streak = self._streaks.get(name)
        if streak is None or not 200 <= status < 300 or not simhash or not are_alike(streak.last, simhash):
            return
        streak.endless += 1
        self._streak(name.partition("/")[0]).endless += 1
        self._remember(name)

    def _is_calendar(self, host: str, group: str, path: str, found_on: str, was_suspected: bool) -> bool:
        """Whether an address counts on: a date far ahead, to which a page of the same pattern links that is not."""
        years = years_of(f"/{path}")
        latest = max(years, default=0)
        if self.spec.traps.level == "strict":
            return latest > self._last_year
        name = f"{host}/{group}"
        if not years or min(years) < FIRST_YEAR or latest > self._last_year + MOST_YEARS_AHEAD:
            _keep(self._no_calendars, name, MOST_PATTERNS)
            return False
        if latest <= self._last_year or name in self._no_calendars or not found_on:
            return False
        _, _, its_host, its_path = found_on.split("/", 3)
        if its_host != host or _group(its_path)[0] != group:
            return False
        return was_suspected or max(years_of(f"/{its_path}"), default=latest) <= self._last_year

    def _counted(self, host: str, pattern: str, url: str) -> TrapReason | None:
        most = self.spec.traps.pages_per_pattern * (LISTING_FACTOR if _is_listing(pattern) else 1)
        if not most:
            return None
        name = f"{host}/{pattern}"
        census = self._counts.pop(name, None)
        if census is None:
            census = PatternCounter(most)
            if len(self._counts) >= MOST_PATTERNS:
                del self._counts[next(iter(self._counts))]
        self._counts[name] = census
        if census.is_full:  # one of those that were let in may be asked for again: it is in line already
            return "pattern", f"/{pattern}"
        census.add(key_of(url))
        return None

    def _streak(self, name: str) -> SimilarPages:
        streak = self._streaks.pop(name, None)
        if streak is None:
            streak = SimilarPages()
            if len(self._streaks) >= MOST_STREAKS:
                del self._streaks[next(iter(self._streaks))]
        self._streaks[name] = streak
        return streak

    def _remember(self, name: str) -> None:
        _keep(self._known, name, MOST_TRAPS)

    @property
    def soft_404_pages(self) -> Soft404Pages:
        """What hosts answer for pages that they do not have."""
        return self._nowhere


def _keep(names: dict[str, None], name: str, most: int) -> None:
    if name not in names and len(names) >= most:
        del names[next(iter(names))]
    names[name] = None


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
