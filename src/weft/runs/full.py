"""Queues that were full a moment ago: what is submitted to them is refused without asking the database again.

A producer that floods a full queue would otherwise keep the database busy with refusals, and everybody waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from weft.errors import QueueFull

REMEMBERED_SECONDS = 0.2
"""How long nobody looks whether there is room again."""


class FullQueues:
    """The projects whose queues were full, each for a moment."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[str, tuple[float, int]] = {}

    def note(self, problem: QueueFull) -> None:
        """Remember whose queue was full just now."""
        self._known[problem.project] = (self._now() + REMEMBERED_SECONDS, problem.limit)

    def refuse(self, projects: Iterable[str]) -> None:
        """Raise what was raised a moment ago, where that was for one of these projects."""
        for project in projects if self._known else ():
            until, limit = self._known.get(project, (0.0, 0))
            if until > self._now():
                raise QueueFull(project, limit)
            self._known.pop(project, None)
