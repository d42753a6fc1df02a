"""Follows the log of a run as it grows: every byte of every attempt once, from any place on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass

from weft.errors import Invalid
from weft.logs.lines import lines_before
from weft.logs.records import LONGEST_RECORD, as_text, safe_cut
from weft.logs.storage import StoredLog
from weft.runs.model import Run
from weft.runs.runs import Runs

LARGEST_PIECE = 1 << 16
_PLACE = re.compile(r"([1-9]\d{0,8})\.(\d{1,15})", re.ASCII)


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Some of an attempt's log; ``start`` and ``end`` count its bytes."""

    attempt: int
    start: int
    end: int
    data: bytes
    goes_on: bool = False
    """Whether the line before it was left open."""
    line: int = 1
    """The number of its first line, where whole lines are wanted."""
    gap: bool = False
    """Whether something before it was left out."""

    @property
    def text(self) -> str:
        """For people: records as Scrapy writes them."""
        return as_text(self.data, goes_on=self.goes_on)

    @property
    def place(self) -> str:
        """Where to go on after it."""
        return f"{self.attempt}.{self.end}"


class LogTail:
    """Follows one run. Its place is an attempt and how many bytes of that one's log were given out.

    A piece ends where nothing that follows changes how it reads: with a line where whole lines are wanted, else not
    within a record or a character. With ``most_behind``, whoever is more bytes behind than that is given the last ones
    alone.
    """

    def __init__(
        self, runs: Runs, run_id: int, place: str = "1.0", *, whole_lines: bool = False, most_behind: int | None = None
    ) -> None:
        found = _PLACE.fullmatch(place)
        if found is None:
            raise Invalid("Last-Event-ID", place, "it must be the id of a piece that was received")
        self._runs, self._run_id, self._whole_lines = runs, run_id, whole_lines
        self._attempt, self._given = int(found[1]), int(found[2])
        self._number, self._skip, self._kept = -1, self._given, b""
        self._open = False
        self._lines, self._is_counted = 0, not self._given  # how many lines were given out
        self._most_behind, self._gap = most_behind, False

    async def look(self) -> tuple[Run, AsyncIterator[LogPiece]]:
        """The run, and what is new; all there is if the run has ended."""
        run = await self._runs.get(self._run_id)
        ended = {each.attempt for each in await self._runs.attempts(self._run_id)}
        return run, self._new(run, ended)

    async def _new(self, run: Run, ended: Collection[int]) -> AsyncIterator[LogPiece]:
        while self._attempt <= run.attempt and self._attempt in ended:
            log, self._kept = await self._runs.open_log(self._run_id, self._attempt), b""
            if self._whole_lines and not self._is_counted:
                self._lines = await lines_before(log, self._given)
            await self._catch_up(log)
            async for part in log.forwards(self._given):
                self._kept += part
                for piece in self._cut(last=False):
                    yield piece
            for piece in self._cut(last=True):
                yield piece
            self._attempt, self._given, self._lines, self._is_counted = self._attempt + 1, 0, 0, True
            self._number, self._skip, self._kept = -1, 0, b""
        if self._attempt == run.attempt:
            for number, data in await self._runs.live_log(self._run_id, self._attempt, self._number):
                seen = min(self._skip, len(data))
                self._lines += 0 if self._is_counted else data.count(b"\n", 0, seen)
                self._number, self._skip = number, self._skip - seen
                self._kept += data[seen:]
            self._is_counted = not self._skip
            if self._most_behind is not None and len(self._kept) > self._most_behind:
                self._leave_out(self._kept.find(b"\n", len(self._kept) - self._most_behind) + 1)
            for piece in self._cut(last=False):
                yield piece

    async def _catch_up(self, log: StoredLog) -> None:
        """Go on with the first line that begins near the end, where the reader is far behind that."""
        if self._most_behind is None or log.size - self._given <= self._most_behind:
            return
        place = log.size - self._most_behind
        async for part in log.forwards(place):
            cut = part.find(b"\n") + 1
            place += cut or len(part)
            if cut:
                break
        self._given, self._lines, self._gap = place, await lines_before(log, place), True

    def _leave_out(self, size: int) -> None:
        self._lines, self._gap = self._lines + self._kept.count(b"\n", 0, size), self._gap or size > 0
        self._given, self._kept = self._given + size, self._kept[size:]

    def _cut(self, *, last: bool) -> Iterator[LogPiece]:
        """Take pieces from what is kept; what cannot be told yet stays there."""
        while self._kept:
            size = self._size(last=last)
            if not size:
                return
            data, self._kept = self._kept[:size], self._kept[size:]
            start, self._given = self._given, self._given + size
            line, self._lines = self._lines + 1, self._lines + data.count(b"\n")
            gap, self._gap = self._gap, False
            yield LogPiece(self._attempt, start, self._given, data, self._open, line, gap)
            self._open = not data.endswith(b"\n")

    def _size(self, *, last: bool) -> int:
        part = self._kept[:LARGEST_PIECE]
        if last and part == self._kept:
            return len(part)
        size = part.rfind(b"\n") + 1 if self._whole_lines else safe_cut(part)
        if size or len(part) < LARGEST_PIECE:
            return size
        line = self._kept.find(b"\n") + 1  # a record that is longer than a piece
        return line or (len(self._kept) if last or len(self._kept) > LONGEST_RECORD else 0)
