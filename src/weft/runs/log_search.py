"""Finds records in a log: by level, by text, by a pattern, from its end."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType

import msgspec

from weft.errors import Invalid
from weft.runs.log_records import LEVELS, LogParser, LogRecord, records_of
from weft.runs.log_shelf import KeptLog

MOST_TAIL = 100_000
PATTERN_SECONDS = 5.0
"""How long a pattern may take for the records of one segment."""
LONGEST_PATTERN = 1000

PROGRAM = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    pattern = re.compile(sys.argv[1])
except (re.error, RecursionError, OverflowError) as problem:
    print(json.dumps(str(problem)), flush=True)
    sys.exit()
print(json.dumps(""), flush=True)
for line in sys.stdin.buffer:
    print(json.dumps([bool(pattern.search(text)) for text in json.loads(line)]), flush=True)
"""


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

    def wants(self, record: LogRecord) -> bool:
        """Whether it is wanted, but for the pattern, which is matched elsewhere."""
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


async def search(log: KeptLog, asked: LogQuery) -> AsyncIterator[list[LogRecord]]:
    """The records that are wanted, part by part, in their order."""
    async with AsyncExitStack() as stack:
        matcher = await stack.enter_async_context(Matcher(asked.regex)) if asked.regex else None
        if asked.tail is not None:
            yield await _tail(log, asked, matcher, asked.tail)
            return
        parser = LogParser()
        async for part in log.forwards():
            if found := await chosen(await asyncio.to_thread(parser.feed, part), asked, matcher):
                yield found
        if found := await chosen(parser.end(), asked, matcher):
            yield found


async def _tail(log: KeptLog, asked: LogQuery, matcher: Matcher | None, most: int) -> list[LogRecord]:
    found: list[list[LogRecord]] = []
    missing = most
    async for part in log.backwards():
        wanted = await chosen(await asyncio.to_thread(records_of, part), asked, matcher)
        found.append(wanted[-missing:])
        missing -= len(found[-1])
        if missing <= 0:
            break
    return [record for wanted in reversed(found) for record in wanted]


async def chosen(records: list[LogRecord], asked: LogQuery, matcher: Matcher | None) -> list[LogRecord]:
    """Those of the records that are wanted."""
    if asked.level or asked.logger or asked.text:
        records = await asyncio.to_thread(lambda: [record for record in records if asked.wants(record)])
    if matcher is None or not records:
        return records
    matched = await matcher.match([record.text for record in records])
    return [record for record, wanted in zip(records, matched, strict=True) if wanted]


class Matcher:
    """Matches a pattern in a process of its own: while Python matches, no other thread of its process runs."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Matcher:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", PROGRAM, self._pattern),
            env={},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 24,
            start_new_session=True,
        )
        try:
            if problem := msgspec.json.decode(await self._answer(), type=str):
                raise Invalid("regex", self._pattern, f"it must be a regular expression ({problem})")
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._end()

    async def match(self, texts: list[str]) -> list[bool]:
        """Whether the pattern occurs in each of the texts."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(texts) + b"\n")
        return msgspec.json.decode(await self._answer(), type=list[bool])

    async def _answer(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        slow = f"it took longer than {PATTERN_SECONDS:g} s for a part of the log; a simpler one may not"
        try:
            async with asyncio.timeout(PATTERN_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError as late:
            raise Invalid("regex", self._pattern, slow) from late
        if not line:
            raise Invalid("regex", self._pattern, slow)
        return line

    async def _end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
