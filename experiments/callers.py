"""Clients of a gateway that submit runs over HTTP, each until it is accepted, and remember what they were told."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from experiments.history import Story
from experiments.submitter import TASK

HANDS = 12
ANSWER_SECONDS = 3.0
RETRY_SECONDS = 0.2
PASSING = frozenset({429, 500, 502, 503, 504})
SLEEP_SECONDS = 0.1


@dataclass(slots=True)
class Callers:
    """Submits to workers of each label in turn, at most ``rate`` a second in all."""

    address: str
    token: str
    labels: Sequence[str]
    rate: float = 10.0
    story: Story = field(default_factory=Story)
    hung: int = 0
    """How often no answer came in time."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _life: str = field(default_factory=lambda: os.urandom(4).hex())

    async def call_forever(self) -> None:
        async with self._session() as session, asyncio.TaskGroup() as group:
            for _ in range(HANDS):
                group.create_task(self._use_hand(session))

    async def one(self, label: str, until: float) -> int | None:
        """Submit one run beside the stream, and return its id; None where nobody accepts it until that moment."""
        key = self._next_key()
        async with self._session() as session:
            await self._submit(session, key, label, until)
        return self.story.acked.get(key)

    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        return aiohttp.ClientSession(timeout=timeout, headers={"Authorization": f"Bearer {self.token}"})

    async def _use_hand(self, session: aiohttp.ClientSession) -> None:
        for label in itertools.cycle(self.labels):
            due = time.monotonic() + HANDS / self.rate
            await self._submit(session, self._next_key(), label)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _next_key(self) -> str:
        return f"{self._life}-{next(self._numbers)}"

    async def _submit(self, session: aiohttp.ClientSession, key: str, label: str, until: float = float("inf")) -> None:
        """Ask with the same key until there is an answer."""
        self.story.tried.add(key)
        run: dict[str, object] = {
            "kind": "noop",
            "name": TASK,
            "spec": {"sleep_seconds": SLEEP_SECONDS},
            "labels": [label],
        }
        run |= {"correlation_id": key, "idempotency_key": key, "retry": {"losses": 100}}
        while not await self._is_settled(session, key, run):
            if time.monotonic() > until:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _is_settled(self, session: aiohttp.ClientSession, key: str, run: dict[str, object]) -> bool:
        try:
            async with session.post(f"{self.address}/v1/runs", json=run) as answer:
                told = await answer.json(content_type=None)
        except TimeoutError:
            self.hung += 1
            return False
        except (aiohttp.ClientError, OSError):
            return False
        if answer.status in PASSING:
            self.story.down += 1
            return False
        if answer.status == 202:
            self.story.acked[key] = int(told["run_id"])
        else:
            self.story.errors.append(f"{answer.status} {told}")
        return True
