"""The log of a run as it grows: every byte of every attempt once, from any place on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.errors import Invalid
from weft.runs.model import Run
from weft.runs.runs import Runs

LARGEST_PIECE = 1 << 16
_PLACE = re.compile(r"([1-9]\d{0,8})\.(\d{1,15})", re.ASCII)


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Some text of an attempt's log; ``start`` and ``end`` count its bytes."""

    attempt: int
    start: int
    end: int
    text: str

    @property
    def place(self) -> str:
        """Where to go on after it."""
        return f"{self.attempt}.{self.end}"


class LogTail:
    """Follows one run. Its place is an attempt and how many bytes of that one's log were given out."""

    def __init__(self, runs: Runs, run_id: int, place: str = "1.0") -> None:
        found = _PLACE.fullmatch(place)
        if found is None:
            raise Invalid("Last-Event-ID", place, "it must be the id of a piece that was received")
        self._runs, self._run_id = runs, run_id
        self._attempt, self._given = int(found[1]), int(found[2])
        self._number, self._skip, self._kept = -1, self._given, b""

    async def look(self) -> tuple[Run, list[LogPiece]]:
        """The run, and what is new; all there is if the run has ended."""
        run = await self._runs.get(self._run_id)
        ended = {each.attempt for each in await self._runs.attempts(self._run_id)}
        found: list[LogPiece] = []
        while self._attempt <= run.attempt and self._attempt in ended:
            whole = await self._runs.log(self._run_id, self._attempt)
            found += self._cut(whole[self._given :], last=True)
            self._attempt, self._given = self._attempt + 1, 0
            self._number, self._skip, self._kept = -1, 0, b""
        if self._attempt == run.attempt:
            found += await self._live()
        return run, found

    async def _live(self) -> list[LogPiece]:
        for number, data in await self._runs.live_log(self._run_id, self._attempt, self._number):
            seen = min(self._skip, len(data))
            self._number, self._skip = number, self._skip - seen
            self._kept += data[seen:]
        pieces = self._cut(self._kept, last=False)
        self._kept = self._kept[sum(piece.end - piece.start for piece in pieces) :]
        return pieces

    def _cut(self, data: bytes, *, last: bool) -> list[LogPiece]:
        """Pieces that end with a character; the beginning of one that is still to come is left out."""
        pieces = []
        while data:
            part = data[:LARGEST_PIECE]
            size = len(part) if last and part == data else whole_characters(part)
            if not size:
                break
            text, start = part[:size].decode("utf-8", "replace"), self._given
            self._given += size
            pieces.append(LogPiece(self._attempt, start, self._given, text))
            data = data[size:]
        return pieces


def whole_characters(data: bytes) -> int:
    """How many bytes there are before a UTF-8 character that is cut off at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if length > back else len(data)
    return len(data)
