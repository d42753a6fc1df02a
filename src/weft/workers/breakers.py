"""The circuit breakers of a worker's executors, for its heartbeat to tell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from weft.ports import Breaker, Executor

log = logging.getLogger(__name__)


class Breakers:
    """Asks the executors of the kinds that run now, and of those that had a breaker when they were last asked."""

    def __init__(self, executor: Callable[[str], Executor]) -> None:
        self._executor = executor
        self._kinds_with_breakers: set[str] = set()

    def rows(self, running: Collection[str]) -> list[dict[str, object]]:
        found = [(kind, self._of(kind)) for kind in {*running, *self._kinds_with_breakers}]
        self._kinds_with_breakers = {kind for kind, breakers in found if breakers}
        return [_row(breaker) for _, breakers in found for breaker in breakers]

    def _of(self, kind: str) -> list[Breaker]:
        try:
            return list(self._executor(kind).breakers())
        except Exception as problem:  # an executor is somebody's plug-in: its fault must not stop the heart
            log.warning("breakers not told", extra={"kind": kind, "why": f"{type(problem).__name__}: {problem}"})
            return []


def _row(breaker: Breaker) -> dict[str, object]:
    return {"target": breaker.target, "state": breaker.state, "failures": breaker.failures}
