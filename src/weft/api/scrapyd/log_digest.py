"""What LogParser finds in a log, found in ours: the latest of each kind of line, how many, and the last of them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

NA = "N/A"
HEAD_LINES, TAIL_LINES, MOST_DETAILS = 100, 200, 10
LONGEST_TEXT, LONGEST_DETAIL = 200_000, 20_000

_ENTRY = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \[[^\]\n]*\] (DEBUG|INFO|WARNING|ERROR|CRITICAL): ", re.MULTILINE
)
_PROGRESS = re.compile(r"Crawled (\d+) pages \(at (\d+) pages/min\), scraped (\d+) items \(at (\d+) items/min\)")
_SIGNAL = re.compile(r"Received SIG(?:BREAK|INT|TERM)(?: twice)?(?=,)")
_SCRAPED = "Scraped from <"

FIRST = {
    "scrapy_version": re.compile(r"Scrapy (\d+\.\d+\.\d+) started"),
    "telnet_console": re.compile(r"Telnet console listening on (\S+)"),
    "resuming_crawl": re.compile(r"(?=Resuming crawl)"),
}
"""Of these the first counts; a group is what is told, otherwise the line."""
LATEST = {
    "latest_offsite": "Filtered offsite",
    "latest_duplicate": "Filtered duplicate",
    "latest_crawl": "Crawled (",
    "latest_stat": " pages (at ",
}
LEVELS = {"critical_logs": "CRITICAL", "error_logs": "ERROR", "warning_logs": "WARNING"}
KINDS = {
    "redirect_logs": re.compile(r"^Redirecting \("),
    "retry_logs": re.compile(r"(?:^| )[Rr]etrying <"),
    "ignore_logs": re.compile(r"^Ignoring response <"),
}
GAVE_UP = "Gave up retrying <"
MATCHES = (
    *("scrapy_version", "telnet_console", "telnet_username", "telnet_password", "resuming_crawl"),
    *("latest_offsite", "latest_duplicate", "latest_crawl", "latest_stat", "latest_scrape", "latest_item"),
)
"""Every name in LogParser's order. Name and password of the telnet console are never told."""

Progress = tuple[str, int, int, int, int]


@dataclass(slots=True)
class Category:
    count: int = 0
    details: list[str] = field(default_factory=list)

    def add(self, text: str, *, counts: bool = True) -> None:
        self.count += counts
        self.details = [*self.details, text[:LONGEST_DETAIL]][-MOST_DETAILS:]


@dataclass(slots=True)
class Digest:
    """What a log says; times are local, as in its lines."""

    head: str = ""
    tail: str = ""
    first_time: str = NA
    latest_time: str = NA
    progress: list[Progress] = field(default_factory=list)
    matches: dict[str, str] = field(default_factory=lambda: dict.fromkeys(MATCHES, ""))
    categories: dict[str, Category] = field(default_factory=lambda: {name: Category() for name in (*LEVELS, *KINDS)})
    shutdown_reason: str = NA


@dataclass(frozen=True, slots=True)
class _Entry:
    at: str
    level: str
    text: str
    """All of its lines."""
    message: str
    """What its first line says."""

    @property
    def line(self) -> str:
        return self.text.partition("\n")[0]


def digest(beginning: str, end: str) -> Digest:
    """What a log says whose beginning and end these are; of a short one both are all of it."""
    found = Digest(_first_lines(beginning), _last_lines(end))
    for entry in _entries(beginning):
        found.first_time = entry.at if found.first_time == NA else found.first_time
        _note_first(found, entry)
    for entry in _entries(end):
        found.latest_time = entry.at
        _note_latest(found, entry)
        _note_kind(found, entry)
    return found


def seconds_of(text: str) -> int:
    """A local time as seconds since 1970; 0 where it is none."""
    try:
        return int(time.mktime(time.strptime(text[:19], "%Y-%m-%d %H:%M:%S")))
    except (ValueError, OverflowError):
        return 0


def _entries(text: str) -> Iterator[_Entry]:
    heads = list(_ENTRY.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=False):
        whole = text[head.start() : end].rstrip("\n")
        yield _Entry(head[1], head[2], whole, whole[head.end() - head.start() :].partition("\n")[0])


def _note_first(found: Digest, entry: _Entry) -> None:
    for name, pattern in FIRST.items():
        if not found.matches[name] and (met := pattern.search(entry.message)):
            found.matches[name] = met[1] if pattern.groups else entry.line


def _note_latest(found: Digest, entry: _Entry) -> None:
    for name, words in LATEST.items():
        if words in entry.message:
            found.matches[name] = entry.line
    if entry.message.startswith(_SCRAPED) and (item := entry.text.partition("\n")[2]).startswith("{"):
        found.matches |= {"latest_scrape": entry.line, "latest_item": item[:LONGEST_DETAIL]}
    if met := _PROGRESS.search(entry.message):
        pages, pages_min, items, items_min = map(int, met.groups())
        found.progress.append((entry.at, pages, pages_min, items, items_min))
    if met := _SIGNAL.search(entry.message):
        found.shutdown_reason = met[0]


def _note_kind(found: Digest, entry: _Entry) -> None:
    for name, level in LEVELS.items():
        if entry.level == level:
            found.categories[name].add(entry.text)
    for name, pattern in KINDS.items():
        if pattern.search(entry.message):
            found.categories[name].add(entry.text, counts=GAVE_UP not in entry.message)


def _first_lines(text: str) -> str:
    return "\n".join(text[:LONGEST_TEXT].strip().split("\n")[:HEAD_LINES])


def _last_lines(text: str) -> str:
    return "\n".join(text[-LONGEST_TEXT:].strip().split("\n")[-TAIL_LINES:])
