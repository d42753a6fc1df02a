"""Kills one thing after the other with SIGKILL and starts each again a little later."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from experiments.cluster import Role
from tests.servers import Server
from tests.waiting import eventually

Span = tuple[float, float]
"""Seconds, at least and at most."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Something that can be killed and started again."""

    name: str
    kill: Callable[[], None]
    start: Callable[[], None]
    alive: Callable[[], bool]


def role_victim(role: Role) -> Victim:
    return Victim(role.name, role.kill, role.start, lambda: role.alive)


def server_victim(server: Server) -> Victim:
    return Victim(server.kind.name, server.kill, server.start, lambda: bool(server.members()))


class Chaos:
    """Who was killed how often, and who fell without being pushed."""

    def __init__(
        self, victims: Sequence[Victim], chance: random.Random, when: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """``when``: what must be so before anybody is killed."""
        self._victims, self._chance, self._when = list(victims), chance, when
        self._down: set[str] = set()
        self.kills: Counter[str] = Counter()
        self.fallen: list[str] = []

    async def run(self, kills: int, *, every: Span, down: Span) -> None:
        """Kill so many, ``every`` so often; each is started again after ``down``. Return when all are up."""
        async with asyncio.TaskGroup() as group:
            turns = self._turns()
            for _ in range(kills):
                await asyncio.sleep(self._chance.uniform(*every))
                await eventually(lambda: len(self._down) < len(self._victims), 120)
                if self._when is not None:
                    await eventually(self._when, 120)
                victim = next(each for each in turns if each.name not in self._down)
                self._down.add(victim.name)
                await asyncio.to_thread(self._kill, victim)
                group.create_task(self._start_again(victim, self._chance.uniform(*down)))

    def _turns(self) -> Iterator[Victim]:
        """Everyone in random order, again and again, so that nobody is spared."""
        while True:
            yield from self._chance.sample(self._victims, len(self._victims))

    def _kill(self, victim: Victim) -> None:
        if not victim.alive():
            self.fallen.append(victim.name)
        victim.kill()
        self.kills[victim.name] += 1

    async def _start_again(self, victim: Victim, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(victim.start)
        self._down.discard(victim.name)
