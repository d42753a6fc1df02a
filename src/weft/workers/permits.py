"""Permits to ask a host: reservations at the limiter, for the worker of this process or for remote ones."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush

from msgspec.structs import replace

from weft.crawler.messages import PermitRequest
from weft.errors import Invalid, LimiterDown
from weft.ports import Grant, Limiter, Rate

SAY_AGAIN_SECONDS = 600.0
"""How often a limiter is told the rate of an address: it may forget one that it has not heard for an hour."""
MOST_SAID = 10_000
AWAY_SECONDS = 0.5
"""When to ask again where the limiter does not answer."""
HOST, ADDRESS, PROJECT = "host:", "address:", "project:"
OF_PROJECTS = Rate(1_000_000.0, 1_000_000.0)
"""How often a project may ask a host, where it was not told to wait: as often as the host's own rate allows."""
LONGEST_WAIT_SECONDS = 60.0
LONGEST_WAIT_OF_CODE_SECONDS = 2.0
"""How far ahead a spider gets a place; the agent asks for 1.3 s."""
MOST_TO_COME = 16
"""Places of one run under one key whose moment is still to come."""
MOST_LINES = 10_000
"""Of runs, and hosts that projects leave alone, which are remembered."""
HEAR_SECONDS, SOON_SECONDS = 1.0, 0.01
"""How often the limiter is asked whether a project leaves a host alone, and a wait that is none."""


def of_code(asked: PermitRequest) -> PermitRequest:
    """What a spider may ask for, whose code may ask for anything: a place in the line of one host, soon."""
    if len(asked.keys) != 1 or not asked.keys[0].startswith(HOST):
        raise Invalid("permit.keys", _words(asked), "a spider names one host at a time, such as host:shop.example")
    return replace(asked, lead=0.0, rate=0.0, longest_wait=min(asked.longest_wait, LONGEST_WAIT_OF_CODE_SECONDS))


def _check(asked: PermitRequest) -> None:
    if not all(key.startswith((HOST, ADDRESS)) for key in asked.keys):
        raise Invalid("permit.keys", _words(asked), "each must name a host or an address, such as host:shop.example")
    if asked.penalty and not asked.keys[0].startswith(HOST):
        raise Invalid("permit.keys", _words(asked), "a penalty is for a host, such as host:shop.example")


def _words(asked: PermitRequest) -> str:
    return ", ".join(asked.keys)


def _of_project(project: str, key: str) -> str:
    return f"{PROJECT}{project}:{key}"


class Permits:
    """The limiter is opened with the first question."""

    def __init__(self, open_limiter: Callable[[], Limiter]) -> None:
        self._open = open_limiter
        self._limiter: Limiter | None = None
        self._said: dict[tuple[int, str], float] = {}
        """Runs and addresses whose rate was said, and when, by ``time.monotonic``."""
        self._waits: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Until when a project leaves a host alone, and when that was heard, by ``time.monotonic``."""
        self._to_come: OrderedDict[tuple[int, str], list[float]] = OrderedDict()
        """Runs and keys, and when their places come, by ``time.monotonic``."""

    @property
    def degraded(self) -> bool:
        """Whether the limiter does not answer, so that only a part of each limit is given."""
        return self._limiter is not None and self._limiter.degraded

    async def ask(self, run_id: int, asked: PermitRequest, project: str = "") -> Grant:
        """A place in the line of all who ask the same; a penalty is one of the project."""
        _check(asked)
        if self._limiter is None:
            self._limiter = self._open()
        if asked.penalty:
            await self._leave_alone(self._limiter, project, asked)
            return Grant(True)
        try:
            await self._say(self._limiter, run_id, asked)
        except LimiterDown:
            return Grant(False, AWAY_SECONDS, degraded=True)
        wait = await self._left_alone(self._limiter, project, asked.keys[0])
        return Grant(False, wait) if wait > 0 else await self._reserve(self._limiter, run_id, asked)

    async def _reserve(self, limiter: Limiter, run_id: int, asked: PermitRequest) -> Grant:
        line = self._line_of(run_id, asked.keys[0])
        if len(line) >= MOST_TO_COME:
            return Grant(False, max(0.0, line[0] - time.monotonic()))
        longest_wait = min(asked.longest_wait, LONGEST_WAIT_SECONDS)
        grant = await limiter.reserve(asked.keys, longest_wait=longest_wait, lead=asked.lead)
        if grant.granted:
            heappush(line, time.monotonic() + grant.wait_seconds)
        return grant

    def _line_of(self, run_id: int, key: str) -> list[float]:
        """When the places of a run under a key come that are still to come."""
        line = self._to_come.setdefault((run_id, key), [])
        self._to_come.move_to_end((run_id, key))
        if len(self._to_come) > MOST_LINES:
            self._to_come.popitem(last=False)
        while line and line[0] <= time.monotonic():
            heappop(line)
        return line

    async def _leave_alone(self, limiter: Limiter, project: str, asked: PermitRequest) -> None:
        key, at = _of_project(project, asked.keys[0]), time.monotonic()
        self._note(key, max(at + asked.penalty, self._waits.get(key, (0.0, 0.0))[0]), at)
        await limiter.penalise(key, asked.penalty)

    async def _left_alone(self, limiter: Limiter, project: str, host: str) -> float:
        """For how many seconds a project leaves a host alone. What other processes say of it is heard a second later.

        It is asked apart from the place: one that has to wait for the project would take a turn of the host from all.
        """
        if not project or not host.startswith(HOST):
            return 0.0
        key, at = _of_project(project, host), time.monotonic()
        until, looked_at = self._waits.get(key, (0.0, -HEAR_SECONDS))
        if until <= at and at - looked_at >= HEAR_SECONDS:
            grant = await limiter.reserve([key], longest_wait=SOON_SECONDS)
            until = 0.0 if grant.granted else at + grant.wait_seconds
            self._note(key, until, at)
        return max(0.0, until - at)

    def _note(self, key: str, until: float, at: float) -> None:
        self._waits[key] = until, at
        self._waits.move_to_end(key)
        if len(self._waits) > MOST_LINES:
            self._waits.popitem(last=False)

    def unsaid(self, run_id: int, asked: PermitRequest) -> list[str]:
        """The addresses whose rate the limiter is told with this question: crawls bring it, that of hosts is set."""
        at = time.monotonic()
        keys = [key for key in asked.keys if asked.rate and key.startswith("address:")]
        return [key for key in keys if at - self._said.get((run_id, key), -SAY_AGAIN_SECONDS) >= SAY_AGAIN_SECONDS]

    async def close(self) -> None:
        if self._limiter is not None:
            await self._limiter.close()

    async def _say(self, limiter: Limiter, run_id: int, asked: PermitRequest) -> None:
        if new := self.unsaid(run_id, asked):
            await limiter.set({key: Rate(asked.rate) for key in new})
            if len(self._said) >= MOST_SAID:
                self._said.clear()
            self._said |= dict.fromkeys(((run_id, key) for key in new), time.monotonic())
