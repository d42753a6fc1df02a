"""The log of a job as Scrapy itself would have written it: ``time [logger] LEVEL: message``, in local time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from weft.logs.records import MARK
from weft.logs.storage import StoredLog
from weft.runs.runs import Runs
from weft.scrapyd.model import Job

LONGEST_LINE = 4 << 20
"""Bytes of an unfinished line that are waited for; no record of our agent is as long."""


class _AgentRecord(msgspec.Struct, gc=False):
    """What Scrapy writes of a record."""

    message: str = ""
    at: int | None = None
    level: str = ""
    logger: str = ""
    exception: str | None = None


_decode = msgspec.json.Decoder(_AgentRecord).decode

LogMark = tuple[int, int]
"""Where a log can be read from: which of its parts, and at which byte of that one a line begins."""


class LogFormatter:
    """Makes text of the bytes of a log, which may come in pieces that are cut anywhere."""

    def __init__(self) -> None:
        self._held = b""
        self._is_open = False

    @property
    def held(self) -> int | None:
        """How many of the bytes that came are not told yet; None where the text stopped within a line."""
        return None if self._is_open else len(self._held)

    def feed(self, data: bytes) -> bytes:
        """The text of every line that is complete now."""
        data = self._held + data
        cut = data.rfind(b"\n") + 1
        self._held = data[cut:]
        told = [self._line(line) for line in data[: cut - 1].split(b"\n")] if cut else []
        if len(self._held) > LONGEST_LINE:
            told.append(self._held)
            self._held, self._is_open = b"", True
        return b"".join(told)

    def end(self) -> bytes:
        """The text of what came last, without a line end."""
        rest, self._held = self._held, b""
        return self._line(rest) if MARK in rest else rest

    def _line(self, line: bytes) -> bytes:
        if line.startswith(MARK) and line.find(MARK, 1) < 0 and not self._is_open:
            return record_text(line[1:]) + b"\n"
        before, *marked = line.split(MARK)
        was_open, self._is_open = self._is_open, False
        if before or was_open or not marked:
            before += b"\n"
        return b"".join([before, *(record_text(each) + b"\n" for each in marked)])


def record_text(part: bytes) -> bytes:
    """A record as Scrapy's formatter writes it; what is none stays as it is."""
    try:
        said = _decode(part)
        if said.at is None or not said.level:
            return said.message.encode(errors="replace")
        text = f"{local_second(said.at // 1_000_000)} [{said.logger}] {said.level}: {said.message}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError, OSError):
        return part
    if said.exception is not None:
        text += said.exception if text.endswith("\n") else f"\n{said.exception}"
    return text.encode(errors="replace")


@lru_cache(maxsize=512)
def local_second(at: int) -> str:
    """Seconds since 1970 as this machine's clocks show them."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """The log of one attempt."""

    open: Callable[[], Awaitable[StoredLog]]
    is_live: bool
    """More of it may come: what is no whole line yet is not told."""


class JobLog:
    """The text of a job's log, attempt by attempt, never all of it in memory."""

    BEGIN: LogMark = (0, 0)

    def __init__(self, parts: Sequence[AttemptLog]) -> None:
        self._parts = parts

    async def ends(self, most: int) -> tuple[int, bytes, bytes]:
        """How many bytes are kept, and the text of its beginning and of its end.

        Of a log of up to ``most`` bytes both are all of it; of a longer one each is made of about so many at most.
        """
        logs = [await part.open() for part in self._parts]
        size = sum(log.size for log in logs)
        if size <= most:
            text = b"".join([text async for text, _ in self.forwards()])
            return size, text, text
        return size, await self._beginning(most), await _end(logs[-1], most, is_live=self._parts[-1].is_live)

    async def _beginning(self, most: int) -> bytes:
        begun = b""
        async with aclosing(self.forwards()) as pieces:
            async for text, _ in pieces:
                begun += text
                if len(begun) > most // 2:
                    break
        return begun[:most]

    async def forwards(self, place: LogMark = BEGIN) -> AsyncGenerator[tuple[bytes, LogMark | None], None]:
        """Text from a place on in pieces, each with the place where the next begins; None where none can begin."""
        first, begin = place
        for number in range(first, len(self._parts)):
            part, lines = self._parts[number], LogFormatter()
            last = b""
            offset = begin if number == first else 0
            log = await part.open()
            async for data in log.forwards(offset):
                offset += len(data)
                text = await asyncio.to_thread(lines.feed, data)
                last = text or last
                yield text, None if lines.held is None else (number, offset - lines.held)
            if not part.is_live:
                rest = lines.end()
                is_followed = number + 1 < len(self._parts)
                open_line = (rest or last)[-1:] not in (b"", b"\n")
                yield rest + (b"\n" if open_line and is_followed else b""), (number + 1, 0)


async def _end(log: StoredLog, most: int, *, is_live: bool) -> bytes:
    """The text of the last ``most`` bytes of a log, from the first line that is whole."""
    begin = max(0, log.size - most)
    data = b"".join([part async for part in log.forwards(begin)])
    lines = LogFormatter()
    text = await asyncio.to_thread(lines.feed, data[data.find(b"\n") + 1 :] if begin else data)
    return text if is_live else text + lines.end()


async def job_log(runs: Runs, job: Job) -> JobLog:
    """Every attempt of a job as one file; the newest may still grow."""
    ended = {each.attempt for each in await runs.attempts(job.run_id)}
    return JobLog([_attempt_log(runs, job, number, ended) for number in range(1, job.attempt + 1)])


def _attempt_log(runs: Runs, job: Job, attempt: int, ended: set[int]) -> AttemptLog:
    is_live = attempt == job.attempt and attempt not in ended
    return AttemptLog(lambda: runs.open_log(job.run_id, attempt), is_live)
