"""Finds records in a log: by level, by text, by a pattern, from its end."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from weft.errors import Invalid
from weft.logs.records import LEVELS, LogParser, LogRecord, records_of
from weft.logs.storage import StoredLog
from weft.patterns import compiled

MOST_TAIL = 100_000
PATTERN_SECONDS = 5.0
"""How long a pattern may take for the records of one segment."""
LONGEST_PATTERN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which records are wanted."""

    level: str = ""
    """Those of this level or a graver one; a printed line has none."""
    logger: str = ""
    """Those of this logger, or of one below it."""
    text: str = ""
    """Those that hold this, in capitals or not."""
    regex: str = ""
    tail: int | None = None
    """No more than the last so many."""

    def __post_init__(self) -> None:
        if self.tail is not None and not 1 <= self.tail <= MOST_TAIL:
            raise Invalid("tail", self.tail, f"it must be from 1 to {MOST_TAIL}")
        if self.level and self.level not in LEVELS:
            raise Invalid("level", self.level, f"it must be one of {', '.join(LEVELS)}")
        if len(self.regex) > LONGEST_PATTERN:
            raise Invalid("regex", self.regex, f"it may have at most {LONGEST_PATTERN} characters")
        if self.regex:
            compiled(self.regex, "regex")

    def wants(self, record: LogRecord) -> bool:
        """Whether it is wanted, but for the pattern, which is matched in a thread."""
        if self.level and record.weight < LEVELS[self.level]:
            return False
        if self.logger and not f"{record.logger}.".startswith(f"{self.logger}."):
            return False
        return not self.text or self.text.casefold() in record.text.casefold()

    @property
    def words(self) -> tuple[bytes, ...]:
        """What the bytes of each wanted line hold, in small letters, as far as that can be told without reading it."""
        return tuple(each.lower().encode() for each in (self.logger, self.text) if each and _is_literal(each))

    @property
    def wants_all(self) -> bool:
        return not (self.level or self.logger or self.text or self.regex)

    @property
    def wants_errors(self) -> bool:
        """Whether it wants nothing that is less than an error."""
        return LEVELS.get(self.level, 0) >= LEVELS["ERROR"]


_NOT_LITERAL = re.compile(r'[^ -~]|["\\\\\[\]:]|\A[ ]|\A[0-9 -]*\Z')
"""What JSON escapes, what stands between the parts of a record's text, and what may be its time."""


def _is_literal(text: str) -> bool:
    """Whether records that say ``text`` have it in their bytes just so; root and INFO are said where nothing is."""
    return _NOT_LITERAL.search(text) is None and text.lower() not in "root info"


async def search(log: StoredLog, asked: LogQuery) -> AsyncIterator[list[LogRecord]]:
    """The records that are wanted, part by part, in their order."""
    if asked.tail is not None:
        yield await _tail(log, asked, asked.tail)
        return
    parser = LogParser()
    async for part in log.forwards():
        if found := await matching_records(await asyncio.to_thread(parser.feed, part), asked):
            yield found
    if found := await matching_records(parser.end(), asked):
        yield found


async def _tail(log: StoredLog, asked: LogQuery, most: int) -> list[LogRecord]:
    found: list[list[LogRecord]] = []
    missing = most
    async for part in log.backwards():
        wanted = await matching_records(await asyncio.to_thread(records_of, part), asked)
        found.append(wanted[-missing:])
        missing -= len(found[-1])
        if missing <= 0:
            break
    return [record for wanted in reversed(found) for record in wanted]


async def matching_records(records: list[LogRecord], asked: LogQuery) -> list[LogRecord]:
    """Those of the records that are wanted."""
    if asked.level or asked.logger or asked.text:
        records = await asyncio.to_thread(lambda: [record for record in records if asked.wants(record)])
    return await asyncio.to_thread(_matching, records, asked.regex) if asked.regex and records else records


def _matching(records: list[LogRecord], regex: str) -> list[LogRecord]:
    """Those in which the pattern is found. A large pattern and long lines may take long, though never for ever."""
    pattern, until = compiled(regex, "regex"), time.monotonic() + PATTERN_SECONDS
    found = []
    for record in records:
        if pattern.is_in(record.text):
            found.append(record)
        if time.monotonic() > until:
            slow = f"it took longer than {PATTERN_SECONDS:g} s for a part of the log; a simpler one may not"
            raise Invalid("regex", regex, slow)
    return found
