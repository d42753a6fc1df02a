"""How far a reader of all events has read, so that it misses none and sees none twice.

An event gets its id before its transaction commits, so a lower id may appear after a higher one. A position is
therefore the highest id that was seen and the ids below it that were not: each of those is waited for, until a minute
has passed and it must belong to a transaction that was rolled back. As text it is ``1042``, or ``1042~1030,1035-1039``
while some are missing; for its readers that text is opaque.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from weft.clock import Moment, seconds
from weft.errors import Invalid

WAIT = seconds(60)
"""How long an id that is missing is waited for."""

OLD = seconds(600)
"""What lies before an event of this age is not waited for at all: it has appeared by now, or never will."""

MOST_GAPS = 2_000
"""Beyond this the oldest are given up, so that a position stays small."""

WINDOW = 10_000
"""Among how many of the newest ids a reader that begins looks for those that are still to come."""

LARGEST_ID = 2**63 - 1
_TEXT = re.compile(r"\d{1,19}(~\d{1,19}(-\d{1,19})?(,\d{1,19}(-\d{1,19})?)*)?", re.ASCII)


class Gap(NamedTuple):
    """Ids from ``first`` to ``last`` that have not appeared, and the moment when nobody waits for them any more."""

    first: int
    last: int
    until: Moment

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class Cursor:
    """A place in the stream of events."""

    __slots__ = ("_gaps", "_text", "high")

    def __init__(self, high: int = 0, gaps: Iterable[Gap] = ()) -> None:
        self.high, self._gaps = high, list(gaps)
        self._text: str | None = None

    @classmethod
    def parse(cls, text: str, now: Moment) -> Cursor:
        """The position that ``text`` names; what is missing there is waited for from now on."""
        head, _, tail = text.partition("~")
        if not _TEXT.fullmatch(text) or tail.count(",") >= MOST_GAPS:
            raise _invalid(text)
        pairs = [part.partition("-") for part in tail.split(",") if part]
        gaps = [Gap(int(first), int(last or first), now + WAIT) for first, _, last in pairs]
        edges = [0, *(edge for gap in gaps for edge in gap[:2]), int(head)]
        ascending = all(a < b or (a == b and i % 2) for i, (a, b) in enumerate(pairwise(edges)))
        if int(head) > LARGEST_ID or (gaps and not ascending):
            raise _invalid(text)
        return cls(int(head), gaps)

    @classmethod
    def at_end(cls, newest: Sequence[tuple[int, Moment]], now: Moment) -> Cursor:
        """After the newest events, given with their ids ascending; what is missing among them may still come."""
        position = cls(newest[0][0] - 1 if newest else 0)
        for event_id, at in newest:
            position.take(event_id, at, now)
        return position

    def __str__(self) -> str:
        if not self._gaps:
            return str(self.high)
        if self._text is None:
            self._text = ",".join(map(str, self._gaps))
        return f"{self.high}~{self._text}"

    def copy(self) -> Cursor:
        return Cursor(self.high, self._gaps)

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The first and the last of the ids below ``high`` that are waited for, range by range."""
        return [(gap.first, gap.last) for gap in self._gaps]

    def take(self, event_id: int, at: Moment, now: Moment) -> bool:
        """Note an event that happened ``at``; False where it was seen before."""
        if event_id <= self.high:
            return self._fill(event_id)
        if event_id > self.high + 1 and at > now - OLD:
            self._gaps.append(Gap(self.high + 1, event_id - 1, now + WAIT))
            del self._gaps[:-MOST_GAPS]
            self._text = None
        self.high = event_id
        return True

    def give_up(self, now: Moment) -> None:
        """Wait no longer for what has been missing for too long."""
        self._keep([gap for gap in self._gaps if gap.until > now])

    def join(self, tail: Cursor) -> None:
        """Wait only for what ``tail`` may still bring. To be called by a reader that has read all there is."""
        kept = [
            Gap(max(mine.first, theirs[0]), min(mine.last, theirs[1]), mine.until)
            for mine in self._gaps
            for theirs in [*tail.missing, (tail.high + 1, self.high)]
        ]
        self._keep([gap for gap in kept if gap.first <= gap.last])

    def _fill(self, event_id: int) -> bool:
        place = bisect_right(self._gaps, (event_id, LARGEST_ID + 1, 0)) - 1
        if place < 0 or self._gaps[place].last < event_id:
            return False
        first, last, until = self._gaps[place]
        parts = [Gap(first, event_id - 1, until), Gap(event_id + 1, last, until)]
        self._gaps[place : place + 1] = [gap for gap in parts if gap.first <= gap.last]
        self._text = None
        return True

    def _keep(self, gaps: list[Gap]) -> None:
        if len(gaps) != len(self._gaps) or gaps != self._gaps:
            self._gaps, self._text = gaps, None


def _invalid(text: str) -> Invalid:
    return Invalid("Last-Event-ID", text, "it must be the id of an event that was received")
