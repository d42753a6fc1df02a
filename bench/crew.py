"""A process of several workers: ``python -m bench.crew NAME COUNT DIRECTORY [greedy]``.

They note when each run started.

Each is an ordinary worker with an identity, a heartbeat and a capacity of its own; they share a process, its database
connections and its heartbeats, so that a fleet fits on one machine.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

from bench.starts import Stamping
from weft import __version__
from weft.app import App, open_app, open_executor
from weft.cli.processes import end_with_parent, freeze_memory, on_stop, settings
from weft.workers.heartbeat import Heartbeats
from weft.workers.protocol import WorkerInfo
from weft.workers.worker import Worker, WorkerOptions


def crew(app: App, heartbeats: Heartbeats, name: str, count: int, directory: Path) -> list[Worker]:
    """Workers on this process's app whose starts are noted in ``directory``."""
    stamping = Stamping(open_executor("noop"), directory)
    options = WorkerOptions(poll_seconds=app.config.poll_seconds, drain_seconds=app.config.drain_seconds)
    return [
        Worker(
            card(app, f"{name}-{number}"),
            app.protocol,
            heartbeats,
            app.broker,
            app.blobs,
            lambda kind: stamping,
            folder=app.config.folder / "runs" / f"{name}-{number}",
            options=options,
        )
        for number in range(count)
    ]


def card(app: App, name: str) -> WorkerInfo:
    host, capacity = socket.gethostname(), app.config.capacity
    return WorkerInfo(name=name, host=host, pid=os.getpid(), version=__version__, capacity=capacity)


class Greedy:
    """The worker protocol for workers that leave nothing to those that are less busy."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    async def lease(self, worker_id: int, want: int, **_: object) -> Any:
        return await self._protocol.lease(worker_id, want)


async def work(name: str, count: int, directory: Path, mode: str = "") -> None:
    app = await open_app(settings("bench"))
    if mode == "greedy":
        app.protocol = Greedy(app.protocol)
    heartbeats = Heartbeats(app.protocol, app.config.heartbeat_seconds)
    workers = crew(app, heartbeats, name, count, directory)

    def drain() -> None:
        for worker in workers:
            worker.drain()

    on_stop(drain)
    freeze_memory()
    try:
        await asyncio.gather(*(worker.run() for worker in workers))
    finally:
        heartbeats.close()
        await app.close()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(work(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]))
