"""A process of several workers: ``python -m bench.crew NAME COUNT DIRECTORY``. They note when each run started.

Each is an ordinary worker with an identity, a heartbeat and a capacity of its own; they share a process, its database
connections and its heart, so that a fleet fits on one machine.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path

from bench.starts import Stamping
from weft import __version__
from weft.app import App, open_app, open_executor
from weft.cli.processes import end_with_parent, on_stop, settings, settle
from weft.workers.habits import Habits
from weft.workers.heart import Heart
from weft.workers.protocol import Card
from weft.workers.worker import Worker


def crew(app: App, heart: Heart, name: str, count: int, directory: Path) -> list[Worker]:
    """Workers on this process's app whose starts are noted in ``directory``."""
    stamping = Stamping(open_executor("noop"), directory)
    habits = Habits(poll_seconds=app.config.poll_seconds, drain_seconds=app.config.drain_seconds)
    return [
        Worker(
            card(app, f"{name}-{number}"),
            app.protocol,
            heart,
            app.broker,
            app.blobs,
            lambda kind: stamping,
            folder=app.config.folder / "runs" / f"{name}-{number}",
            habits=habits,
        )
        for number in range(count)
    ]


def card(app: App, name: str) -> Card:
    host, capacity = socket.gethostname(), app.config.capacity
    return Card(name=name, host=host, pid=os.getpid(), version=__version__, capacity=capacity)


async def work(name: str, count: int, directory: Path) -> None:
    app = await open_app(settings("bench"))
    heart = Heart(app.protocol, app.config.heartbeat_seconds)
    workers = crew(app, heart, name, count, directory)

    def drain() -> None:
        for worker in workers:
            worker.drain()

    on_stop(drain)
    settle()
    try:
        await asyncio.gather(*(worker.run() for worker in workers))
    finally:
        heart.close()
        await app.close()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(work(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
