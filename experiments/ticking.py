"""A scheduler on a fast clock, as a process of its own: ``python -m experiments.ticking CLOCK PATIENCE``.

On SIGUSR1 it freezes (SIGSTOP) at the worst moment: when it has read what is due and written nothing yet.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from weft.app import open_app
from weft.cli.processes import on_stop, settings
from weft.clock import Moment
from weft.config import Config
from weft.loops import every, repeat
from weft.tasks import store
from weft.tasks.leader import Leader
from weft.tasks.scheduler import Scheduler
from weft.worker_setup import me

LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class FastClock:
    """Shows the same time in every process of the machine, and runs ``speed`` times as fast as theirs."""

    start: Moment
    origin_ns: int
    """What the machine's monotonic clock showed at ``start``."""
    speed: int

    @classmethod
    def from_now(cls, start: Moment, speed: int) -> FastClock:
        return cls(start, time.monotonic_ns(), speed)

    @classmethod
    def parse(cls, text: str) -> FastClock:
        return cls(*map(int, text.split(":")))

    def __call__(self) -> Moment:
        return self.start + (time.monotonic_ns() - self.origin_ns) * self.speed // 1000

    def __str__(self) -> str:
        return f"{self.start}:{self.origin_ns}:{self.speed}"


class Freeze:
    """Stops the process inside the next transaction that finds something due, once it was asked to."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGUSR1, lambda *_: self.ask())

    def ask(self) -> None:
        self.asked = True

    def due(self, read: Any, tx: Any, now: Moment, limit: int) -> Any:
        found = read(tx, now, limit)
        if found and self.asked:
            self.asked = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return found


def due_unlocked(tx: Any, now: Moment, limit: int) -> dict[int, tuple[Moment, int]]:
    """What is due, as a scheduler reads it that trusts its leadership: no row is locked."""
    schedules = store.schedules
    query = schedules.select().where(schedules.c.next_fire_at <= now).limit(limit)
    return {row.task_id: (row.next_fire_at, row.missed) for row in tx.rows(query)}


def trust_the_leader() -> None:
    """Red control: all that keeps a second leader from doing harm is off. The key of the ticks is dropped elsewhere."""
    advance = store.advance

    def advance_unasked(tx: Any, rows: Any) -> int:
        advance(tx, rows)
        return len(rows)

    store.due, store.advance = due_unlocked, advance_unasked
    store.known_ticks = lambda tx, wanted: set()


async def tick_forever(config: Config, clock: FastClock, patience_seconds: float) -> None:
    app = await open_app(config, clock)
    leader = Leader(app.db, "scheduler", me(), patience_seconds=patience_seconds)
    scheduler = Scheduler(app.db, app.runs, leader, clock, grace_seconds=config.misfire_grace_seconds)
    stopped = asyncio.Event()
    on_stop(stopped.set)
    ticking = asyncio.create_task(repeat("fire schedules", scheduler.tick, every(LOOK_SECONDS)))
    await stopped.wait()
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
    await app.close()


def main(clock: str, patience: str) -> None:
    store.due = partial(Freeze().due, store.due)
    asyncio.run(tick_forever(settings("ticking"), FastClock.parse(clock), float(patience)))


if __name__ == "__main__":
    main(*sys.argv[1:])
