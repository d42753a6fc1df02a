"""Pages of a log by line number: the last lines, those before or after a line, and of these the ones that match.

A line is what ends with a line end; a record of our agent is one, with its traceback. A page of them costs the segments
that it lies in, however long the log is; a search looks at no more than ``SEARCHED`` bytes and says where it stopped.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile

import msgspec

from weft.logs.records import LONGEST_RECORD, MARK, LogRecord, records_in
from weft.logs.search import LogQuery, matching_records
from weft.logs.storage import StoredLog, has_error

SEARCHED = 32 << 20
GLANCED_AT = 8
"""How many segments that hold none of the words cost as much as one whose lines are read."""
AT_ONCE = 5_000
"""How many lines are searched in one go."""
TRACEBACK = b"Traceback (most recent call last)"
DATED = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
"""How a line begins that Scrapy writes."""
MOST_TRACEBACK, LONGEST_RAW = 200, 500
"""Lines of a printed traceback that are looked at, and bytes of each."""
MOST_RECORDS = 50
"""How many records of one line are told; our agent writes one."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line and what it says; more than one record where somebody printed without a line end before one."""

    number: int
    records: Sequence[LogRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLinePage:
    lines: list[LogLine]
    older: int | None
    """Go on with those before this line; None where the log begins."""
    newer: int | None
    """Go on with those after this line; None where the log ends."""


@dataclass(frozen=True, slots=True)
class LineBlock:
    """The lines that begin in one segment, as bytes; ``skipped`` bytes of the last were too many."""

    first: int
    raw: list[bytes]
    skipped: int


class LogLineReader:
    """Reads the lines of a log whose segments are counted."""

    def __init__(self, log: StoredLog) -> None:
        self._log = log
        self._counts = [each.lines or 0 for each in log.segments]
        self._starts = [0, *accumulate(self._counts)]
        self._recent: dict[int, bytes] = {}

    @classmethod
    async def of(cls, log: StoredLog) -> LogLineReader:
        await log.count()
        return cls(log)

    async def total(self) -> int:
        """How many lines there are; the last may have no end."""
        ended = not self._log.size or (await self._part(len(self._counts) - 1)).endswith(b"\n")
        return self._starts[-1] + (not ended)

    async def before(self, line: int | None, asked: LogQuery, limit: int) -> LogLinePage:
        """The last of the wanted lines before ``line``, or at the log's end."""
        found: list[LogLine] = []
        most = SEARCHED
        until = 2**63 if line is None else line
        block = len(self._counts) - 1 if line is None else self._block_of(line - 1)
        while block >= 0 and len(found) < limit and most > 0:
            if self._may_hold(block, asked):
                lines = await self._block(block, asked)
                found = await _last(lines, until, asked, limit - len(found)) + found
                most -= self._cost(block, lines)
            block -= 1
        older: int | None = found[0].number if len(found) == limit else self._first(block + 1)
        newer = None if line is None else (found[-1].number if found else line - 1)
        return LogLinePage(lines=found, older=older if older and older > 1 else None, newer=newer)

    async def after(self, line: int, asked: LogQuery, limit: int) -> LogLinePage:
        """The first of the wanted lines after ``line``."""
        found: list[LogLine] = []
        most, block, count = SEARCHED, self._block_of(line + 1), len(self._counts)
        while block < count and len(found) < limit and most > 0:
            if self._may_hold(block, asked):
                lines = await self._block(block, asked)
                found += await _next(lines, line, asked, limit - len(found))
                most -= self._cost(block, lines)
            block += 1
        full = len(found) == limit
        newer = found[-1].number if full else max(line, self._first(block) - 1) if block < count else None
        if newer is not None and newer >= await self.total():
            newer = None
        return LogLinePage(lines=found, older=line + 1 if line else None, newer=newer)

    async def errors(self, most_bytes: int | None = None) -> AsyncIterator[list[LogLine]]:
        """Every error, in its order; with ``most_bytes``, those near the end."""
        left, asked = self._log.size, LogQuery(level="ERROR")
        for block, segment in enumerate(self._log.segments):
            if (most_bytes is None or left - segment.size < most_bytes) and self._may_hold(block, asked):
                yield await asyncio.to_thread(_errors, await self._block(block, asked), asked)
            left -= segment.size

    def _cost(self, block: int, lines: LineBlock) -> int:
        """How much of what may be searched a segment was: less where its lines were not looked at one by one."""
        size = self._log.segments[block].size
        return size if lines.raw else size // GLANCED_AT

    def _first(self, block: int) -> int:
        """The number of the first line that begins in a segment. What it begins with belongs to the one before."""
        return self._starts[block] + 2 if block else 1

    def _block_of(self, line: int) -> int:
        """The segment in which a line begins."""
        return max(0, bisect_right(range(len(self._counts)), line, key=self._first) - 1)

    def _may_hold(self, block: int, asked: LogQuery) -> bool:
        """Whether a wanted line may begin in a segment: its word for an error may be in a later one."""
        if block and not self._counts[block]:
            return False
        if not asked.wants_errors:
            return True
        for number in range(block, len(self._counts)):
            if self._log.segments[number].errors is not False:
                return True
            if number > block and self._counts[number]:
                return False
        return False

    async def _part(self, number: int) -> bytes:
        """A segment; the last two are remembered, for lines that go on from one to the next."""
        if number not in self._recent:
            self._recent = dict([*self._recent.items()][-1:]) | {number: await self._log.part(number)}
        return self._recent[number]

    async def _block(self, block: int, asked: LogQuery) -> LineBlock:
        """The lines that begin in a segment; none where no wanted one can be among them."""
        data = await self._part(block)
        parts, skipped = [data[data.find(b"\n") + 1 :] if block else data], 0
        held = len(parts[0])
        for number in range(block + 1, len(self._counts)):
            if held > LONGEST_RECORD + len(parts[0]) and not self._counts[number]:
                skipped += self._log.segments[number].size
                continue
            part = await self._part(number)
            end = part.find(b"\n") + 1
            parts.append(part[:end] if end else part)
            held += len(parts[-1])
            if end:
                break
        whole = b"".join(parts)
        raw = whole.removesuffix(b"\n").split(b"\n") if whole and _may_be_wanted(whole, asked) else []
        return LineBlock(self._first(block), raw, skipped)


async def _last(lines: LineBlock, until: int, asked: LogQuery, limit: int) -> list[LogLine]:
    """The last of the wanted lines, of those before ``until``."""
    found: list[LogLine] = []
    stop, step = min(len(lines.raw), max(0, until - lines.first)), limit if asked.wants_all else AT_ONCE
    while stop > 0 and len(found) < limit:
        found = await _wanted(lines, max(0, stop - step), stop, asked) + found
        stop -= step
    return found[-limit:]


async def _next(lines: LineBlock, line: int, asked: LogQuery, limit: int) -> list[LogLine]:
    """The first of the wanted lines, of those after ``line``."""
    found: list[LogLine] = []
    start, step = max(0, line + 1 - lines.first), limit if asked.wants_all else AT_ONCE
    while start < len(lines.raw) and len(found) < limit:
        found += await _wanted(lines, start, start + step, asked)
        start += step
    return found[:limit]


async def _wanted(block: LineBlock, start: int, stop: int, asked: LogQuery) -> list[LogLine]:
    """The wanted ones of some lines of a block."""
    return await matching_lines(await asyncio.to_thread(_parsed, block, start, stop, asked), asked)


def _parsed(block: LineBlock, start: int, stop: int, asked: LogQuery) -> list[LogLine]:
    last = len(block.raw) - 1
    found = []
    for place, raw in enumerate(block.raw[start:stop], start):
        if not _may_be_wanted(raw, asked):
            continue
        more = max(0, len(raw) - LONGEST_RECORD) + (block.skipped if place == last else 0)
        records = islice(records_in(raw[:LONGEST_RECORD], more), MOST_RECORDS)
        found.append(LogLine(block.first + place, list(records)))
    return found


def _may_be_wanted(data: bytes, asked: LogQuery) -> bool:
    """Whether it is worth while to read these bytes. Colours may stand within a word."""
    if asked.wants_errors and not has_error(data):
        return False
    small = data.lower() if asked.words else b""
    return all(word in small for word in asked.words) or b"\x1b" in small or b"\\u001b" in small


def _errors(block: LineBlock, asked: LogQuery) -> list[LogLine]:
    """The errors of a block; one that was printed as text has the traceback that was printed below it."""
    return [
        LogLine(line.number, [_with_traceback(block, line.number, each) for each in line.records if asked.wants(each)])
        for line in _parsed(block, 0, len(block.raw), asked)
    ]


def _with_traceback(block: LineBlock, number: int, record: LogRecord) -> LogRecord:
    below = block.raw[number - block.first + 1 : number - block.first + 1 + MOST_TRACEBACK]
    if record.exception is not None or not below or not below[0].startswith(TRACEBACK):
        return record
    printed = list(takewhile(lambda raw: not raw.startswith(MARK) and not DATED.match(raw), below))
    text = b"\n".join(raw[:LONGEST_RAW] for raw in printed).decode("utf-8", "replace")
    return msgspec.structs.replace(record, exception=text.rstrip())


async def lines_before(log: StoredLog, place: int) -> int:
    """How many lines end before a byte of a log."""
    await log.count()
    count, start = 0, 0
    for number, segment in enumerate(log.segments):
        if start + segment.size > place:
            return count + (await log.part(number)).count(b"\n", 0, place - start)
        count, start = count + (segment.lines or 0), start + segment.size
    return count


def lines_in(data: bytes, first: int) -> list[LogLine]:
    """The lines of some bytes, which begin with the line ``first``."""
    raw = data.removesuffix(b"\n").split(b"\n")
    return _parsed(LineBlock(first, raw, 0), 0, len(raw), LogQuery())


async def matching_lines(lines: list[LogLine], asked: LogQuery) -> list[LogLine]:
    """The wanted ones of some lines, each with the wanted ones of its records."""
    if asked.wants_all:
        return lines
    records = [record for line in lines for record in line.records]
    kept = {id(record) for record in await matching_records(records, asked)}
    left = [LogLine(line.number, [each for each in line.records if id(each) in kept]) for line in lines]
    return [line for line in left if line.records]
