"""How much of a core this process uses: one that uses nearly all of it gains nothing by more hosts.

It holds a few at first, then looks how busy they make it before it asks for more. So those that work on one crawl share
its hosts by what each can do, whenever it was started.
"""

from __future__ import annotations

import time

SHORTEST_SECONDS = 0.03
LONGEST_SECONDS = 1.0
BUSY = 0.8
"""Of a core."""
LATE_SECONDS = 0.03
"""A process that is woken so much later than it wanted gets no more of a core than it has."""


class Load:
    """Measures from one moment to the next."""

    def __init__(self) -> None:
        self._late = 0.0
        self.begin()

    def woken(self, late: float) -> None:
        """So many seconds later than was asked for."""
        self._late += 0.3 * (late - self._late)

    def begin(self) -> None:
        """What comes from now on counts."""
        self._cpu, self._wall = time.process_time(), time.monotonic()

    def has_room(self) -> bool:
        """Whether there is enough of a core left for more, as far as is known already."""
        passed = time.monotonic() - self._wall
        if passed < SHORTEST_SECONDS:
            return False
        share = (time.process_time() - self._cpu) / passed
        if passed > LONGEST_SECONDS:
            self.begin()
        return share < BUSY and self._late < LATE_SECONDS
