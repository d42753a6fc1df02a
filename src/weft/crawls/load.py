"""How much of a core this process uses: one that uses nearly all of it gains nothing by more hosts.

It holds a few at first, then looks how busy they make it before it asks for more. So those that work on one crawl share
its hosts by what each can do, whenever it was started.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHORTEST_SECONDS = 0.03
LONGEST_SECONDS = 1.0
BUSY, CALM = 0.8, 0.2
"""Shares of a core: above the one there is no room, below the other there always is."""
LATE_SECONDS = 0.03
"""A process that is woken so much later than it wanted gets no more of a core than it has."""


Seconds = Callable[[], float]


class Load:
    """Measures from one moment to the next, by a clock of the processor and one of the wall."""

    def __init__(self, cpu: Seconds = time.process_time, wall: Seconds = time.monotonic) -> None:
        self._cpu, self._wall = cpu, wall
        self._late = 0.0
        self.begin()

    def woken(self, late: float) -> None:
        """So many seconds later than was asked for."""
        self._late += 0.3 * (late - self._late)

    def begin(self) -> None:
        """What comes from now on counts."""
        self._used, self._since = self._cpu(), self._wall()

    def has_room(self) -> bool:
        """Whether there is enough of a core left for more, as far as is known already."""
        passed = self._wall() - self._since
        if passed < SHORTEST_SECONDS:
            return False
        share = (self._cpu() - self._used) / passed
        if passed > LONGEST_SECONDS:
            self.begin()
        return share < CALM or (share < BUSY and self._late < LATE_SECONDS)
