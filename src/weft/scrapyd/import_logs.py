"""What the log of a job tells of it: when it began and ended, how, and Scrapy's statistics.

Only the beginning and the end of a log are read, however long it is, and nothing in it is executed.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Any

from weft.clock import Moment, moment
from weft.scrapyd.import_model import LogEnd

HEAD, TAIL = 64 << 10, 512 << 10
OPENED, CLOSING, DUMPED = "Spider opened", "Spider closed (", "Dumping Scrapy stats:"
CLOSED = re.compile(r"Spider closed \(([^()\n]{1,200})\)")
LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)? \[", re.MULTILINE | re.ASCII)
STAT = re.compile(r"^[ {]\s{0,8}'([^'\\\n]{1,200})': (.{1,500}?)[,}]$", re.MULTILINE)
NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,20})?", re.ASCII)
WORD = re.compile(r"'([^'\\]*)'")
TIME = re.compile(r"datetime\.datetime\((\d{1,4}(?:, \d{1,6}){2,6})(?:, tzinfo=datetime\.timezone\.utc)?\)", re.ASCII)


def read_end(file: int) -> LogEnd:
    """What the log that is open as ``file`` tells."""
    found = os.fstat(file)
    head = os.pread(file, HEAD, 0).decode("utf-8", "replace")
    tail = os.pread(file, TAIL, max(0, found.st_size - TAIL)).decode("utf-8", "replace")
    stats = _stats(tail)
    first, last = LINE.search(head), _last(tail)
    return LogEnd(
        size=found.st_size,
        changed_at=found.st_mtime_ns // 1000,
        started_at=_utc(stats.get("start_time")) or (local_moment(first[1]) if first else None),
        ended_at=_utc(stats.get("finish_time")) or (local_moment(last) if last else None),
        finish_reason=_reason(tail, stats),
        stats=stats,
    )


def _reason(tail: str, stats: dict[str, Any]) -> str | None:
    """Why the spider was closed; None where it was not, or was opened again since under the same name."""
    if tail.rfind(OPENED) > max(tail.rfind(CLOSING), tail.rfind(DUMPED)):
        return None
    closed, dumped = CLOSED.findall(tail), stats.get("finish_reason")
    return str(closed[-1]) if closed else dumped if isinstance(dumped, str) else None


def _last(tail: str) -> str | None:
    found = None
    for match in LINE.finditer(tail):
        found = match[1]
    return found


def _stats(tail: str) -> dict[str, Any]:
    """What Scrapy has dumped last: one value a line, of which those are read that JSON can say."""
    _, dumped, text = tail.rpartition(DUMPED)
    if not dumped:
        return {}
    after = LINE.search(text)
    text = text[: after.start()] if after else text
    read = ((name, _value(value)) for name, value in STAT.findall(text))
    return {name: value for name, value in read if value is not None}


def _value(text: str) -> int | float | str | None:
    if number := NUMBER.fullmatch(text):
        return float(text) if number[1] else int(text)
    if word := WORD.fullmatch(text):
        return word[1].replace("\0", "")
    if time := TIME.fullmatch(text):
        return _iso([int(each) for each in time[1].split(", ")])
    return None


def _iso(parts: list[int]) -> str | None:
    """Scrapy tells times in UTC."""
    try:
        return datetime(*parts, tzinfo=UTC).isoformat()  # type: ignore[arg-type,misc]
    except ValueError:
        return None


def _utc(text: object) -> Moment | None:
    try:
        return _plausible(datetime.fromisoformat(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def local_moment(text: str) -> Moment | None:
    """The moment of a time without a zone, which is that of this machine: as Scrapy and Scrapyd write it."""
    try:
        return _plausible(datetime.fromisoformat(text).astimezone())
    except (ValueError, OverflowError, OSError):
        return None


def _plausible(when: datetime) -> Moment | None:
    return moment(when) if 1990 <= when.year <= 2200 else None
