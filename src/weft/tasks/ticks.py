"""The ticks of a schedule: a set of moments that can be walked in both directions and counted.

What clock changes do to cron is the rule of Debian's cron. Fixed times that a spring change skips tick once, at the end
of the gap. Fixed times that an autumn change repeats tick once, the first time round. An expression whose minute or
hour starts with ``*`` ticks at each real minute whose wall time matches. Intervals follow elapsed time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from weft.clock import SECOND, Moment
from weft.tasks.cron import QUIET_YEARS, Cron
from weft.tasks.zones import DAY, Stretch, backward, onward

MINUTE = 60
QUIET = QUIET_YEARS * 366 * DAY


class Ticks(Protocol):
    """Moments in order. Every method costs the same for the next minute and for a year of outage."""

    def onward(self, at: Moment) -> Iterator[Moment]:
        """Each tick at or after ``at``, the earliest first."""

    def backward(self, at: Moment) -> Iterator[Moment]:
        """Each tick at or before ``at``, the latest first."""

    def count(self, start: Moment, end: Moment) -> int:
        """How many ticks lie from ``start`` up to, not including, ``end``."""


@dataclass(frozen=True, slots=True)
class Once:
    at: Moment

    def onward(self, at: Moment) -> Iterator[Moment]:
        return iter((self.at,) if at <= self.at else ())

    def backward(self, at: Moment) -> Iterator[Moment]:
        return iter((self.at,) if self.at <= at else ())

    def count(self, start: Moment, end: Moment) -> int:
        return int(start <= self.at < end)


@dataclass(frozen=True, slots=True)
class Every:
    """A tick at ``start`` and after each ``period`` since."""

    start: Moment
    period: Moment

    def onward(self, at: Moment) -> Iterator[Moment]:
        return count(self.start + self._passed(at) * self.period, self.period)

    def backward(self, at: Moment) -> Iterator[Moment]:
        last = (at - self.start) // self.period
        return (self.start + number * self.period for number in range(last, -1, -1))

    def count(self, start: Moment, end: Moment) -> int:
        return max(0, self._passed(end) - self._passed(start))

    def _passed(self, at: Moment) -> int:
        """How many ticks lie before ``at``."""
        return max(0, -((self.start - at) // self.period))


@dataclass(frozen=True, slots=True)
class CronTicks:
    cron: Cron
    zone: str

    def onward(self, at: Moment) -> Iterator[Moment]:
        start = -(-at // SECOND)
        quiet_until = start + QUIET
        for stretch in onward(self.zone, start):
            if stretch.start > quiet_until:
                return
            for second in self._rising(stretch, max(start, stretch.start)):
                quiet_until = second + QUIET
                yield second * SECOND

    def backward(self, at: Moment) -> Iterator[Moment]:
        end = at // SECOND + 1
        for stretch in backward(self.zone, end - 1):
            for second in self._falling(stretch, min(end, stretch.end)):
                yield second * SECOND

    def count(self, start: Moment, end: Moment) -> int:
        first, beyond = -(-start // SECOND), -(-end // SECOND)
        total = 0
        for stretch in onward(self.zone, first):
            if stretch.start >= beyond:
                break
            total += self.cron.count(*self._walls(stretch, max(first, stretch.start), min(beyond, stretch.end)))
            total += first <= stretch.start and self._ends_a_gap(stretch)
        return total

    def _rising(self, stretch: Stretch, start: int) -> Iterator[int]:
        if start == stretch.start and self._ends_a_gap(stretch):
            yield start
        low, high = self._walls(stretch, start, stretch.end)
        wall = self.cron.first(low)
        while wall is not None and wall < high:
            yield wall * MINUTE - stretch.offset
            wall = self.cron.first(wall + 1)

    def _falling(self, stretch: Stretch, end: int) -> Iterator[int]:
        low, high = self._walls(stretch, stretch.start, end)
        wall = self.cron.last(high - 1)
        while wall is not None and wall >= low:
            yield wall * MINUTE - stretch.offset
            wall = self.cron.last(wall - 1)
        if self._ends_a_gap(stretch):
            yield stretch.start

    def _walls(self, stretch: Stretch, start: int, end: int) -> tuple[int, int]:
        """The wall minutes from ``start`` up to ``end`` that may tick, without those that are shown a second time."""
        low = start + stretch.offset
        if not self.cron.follows_elapsed:
            low = max(low, stretch.start + stretch.before)
        return _minute_from(low), _minute_from(end + stretch.offset)

    def _ends_a_gap(self, stretch: Stretch) -> bool:
        """True where a fixed time was skipped just before and the end of the gap is not a tick of its own."""
        if self.cron.follows_elapsed or stretch.before >= stretch.offset:
            return False
        skipped = self.cron.first(_minute_from(stretch.start + stretch.before))
        end = stretch.start + stretch.offset
        if skipped is None or skipped >= _minute_from(end):
            return False
        return end % MINUTE != 0 or self.cron.first(end // MINUTE) != end // MINUTE


def _minute_from(second: int) -> int:
    return -(-second // MINUTE)
