"""What processes use while an experiment goes on, and how soon a gateway says that it lives."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from experiments.cluster import Role

SAMPLE_SECONDS = 0.2
PROBE_SECONDS = 0.05
HOPELESS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Use:
    """What one process uses."""

    threads: int = 0
    files: int = 0
    megabytes: float = 0.0

    @classmethod
    def of(cls, pid: int) -> Use:
        process = Path(f"/proc/{pid}")
        pages = int((process / "statm").read_text().split()[1])
        return cls(
            threads=len(os.listdir(process / "task")),
            files=len(os.listdir(process / "fd")),
            megabytes=pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        )

    def most(self, other: Use) -> Use:
        return Use(max(self.threads, other.threads), max(self.files, other.files), max(self.megabytes, other.megabytes))

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.files} files, {self.megabytes:.0f} MB"


@dataclass(slots=True)
class Gauges:
    """Looks at roles again and again, and asks one address for its health."""

    roles: Mapping[str, Role]
    health: str
    before: dict[str, Use] = field(default_factory=dict)
    peak: dict[str, Use] = field(default_factory=dict)
    answers: list[float] = field(default_factory=list)
    """How long each answer to the question for health took, in seconds."""

    def take_as_normal(self) -> None:
        """What is used now is what all else is compared with."""
        self.before = self.now()
        self.peak = dict(self.before)

    def now(self) -> dict[str, Use]:
        return {name: Use.of(role.pid) for name, role in self.roles.items() if role.alive}

    async def look_forever(self) -> None:
        while True:
            for name, use in self.now().items():
                self.peak[name] = self.peak.get(name, Use()).most(use)
            await asyncio.sleep(SAMPLE_SECONDS)

    async def probe_forever(self) -> None:
        timeout = aiohttp.ClientTimeout(total=HOPELESS_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                began = time.monotonic()
                try:
                    async with session.get(self.health) as answer:
                        took = time.monotonic() - began if answer.status == 200 else HOPELESS_SECONDS
                except (aiohttp.ClientError, TimeoutError, OSError):
                    took = HOPELESS_SECONDS
                self.answers.append(took)
                await asyncio.sleep(PROBE_SECONDS)

    @property
    def slowest_but_one_in_a_hundred(self) -> float:
        ordered = sorted(self.answers) or [HOPELESS_SECONDS]
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
