"""A process of several remote workers: ``python -m bench.far_crew NAME URL CA_FILE DIRECTORY TOKEN…``.

Each has a join token, a key, a line and a heartbeat of its own and speaks the worker protocol over HTTPS; they share a
process and the thread of its heartbeats, so that many fit on one machine. They note when each run started.
"""

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.starts import Stamping
from weft import __version__
from weft.cli.processes import end_with_parent, on_stop, settings
from weft.config import Config
from weft.runs.model import Ending, Lease
from weft.worker_setup import open_executor
from weft.workers.heartbeat import Heartbeats
from weft.workers.protocol import Heartbeat, HeartbeatReply, LogChunk, WorkerInfo
from weft.workers.remote.client import RemoteWorkerClient
from weft.workers.remote.enrolment import enrolled_client
from weft.workers.remote.protocol import RemoteBlobs, RemoteBroker, RemoteProtocol
from weft.workers.remote.wire import LONGEST_WAIT_SECONDS
from weft.workers.worker import Worker, WorkerOptions

AT_ONCE = 10
"""How many enrol at the same time."""


class Switchboard:
    """Lets one heart beat for workers that have a line each."""

    def __init__(self) -> None:
        self.lines: dict[int, RemoteProtocol] = {}

    async def heartbeat(self, worker_id: int, beat: Heartbeat) -> HeartbeatReply:
        return await self.lines[worker_id].heartbeat(worker_id, beat)

    async def join(self, card: WorkerInfo) -> int:
        raise NotImplementedError

    async def lease(self, worker_id: int, want: int) -> list[Lease]:
        raise NotImplementedError

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        raise NotImplementedError

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        raise NotImplementedError


class Line(RemoteProtocol):
    """A worker's own protocol, known to the switchboard from when it has joined."""

    def __init__(self, link: RemoteWorkerClient, switchboard: Switchboard) -> None:
        super().__init__(link)
        self._switchboard = switchboard

    async def join(self, card: WorkerInfo) -> int:
        worker_id = await super().join(card)
        self._switchboard.lines[worker_id] = self
        return worker_id


def card(config: Config, name: str) -> WorkerInfo:
    return WorkerInfo(
        name=name, host=socket.gethostname(), pid=os.getpid(), version=__version__, capacity=config.capacity
    )


class Crew:
    """The workers of this process."""

    def __init__(self, config: Config, url: str, ca_file: str, directory: Path) -> None:
        self._config, self._url, self._ca_file = config, url, ca_file
        self._switchboard = Switchboard()
        self._heartbeats = Heartbeats(self._switchboard, config.heartbeat_seconds)
        self._stamping = Stamping(open_executor("noop"), directory)
        self._places = asyncio.Semaphore(AT_ONCE)
        self._links: list[RemoteWorkerClient] = []

    async def hire(self, name: str, token: str) -> Worker:
        """A worker that has used up its token."""
        async with self._places:
            file = self._config.folder / "worker-keys" / f"{name}.key"
            connect = partial(RemoteWorkerClient, self._url, ca_file=self._ca_file)
            link = await enrolled_client(connect, self._url, file, name, token)
        self._links.append(link)
        protocol = Line(link, self._switchboard)
        config = self._config
        return Worker(
            card(config, name),
            protocol,
            self._heartbeats,
            RemoteBroker(protocol),
            RemoteBlobs(protocol),
            lambda kind: self._stamping,
            folder=config.folder / "runs" / name,
            options=WorkerOptions(
                poll_seconds=config.poll_seconds,
                listen_seconds=LONGEST_WAIT_SECONDS,
                drain_seconds=config.drain_seconds,
            ),
        )

    async def close(self) -> None:
        self._heartbeats.close()
        await asyncio.gather(*(link.close() for link in self._links))


async def work(name: str, url: str, ca_file: str, directory: Path, tokens: Sequence[str]) -> None:
    crew = Crew(settings("bench"), url, ca_file, directory)
    try:
        workers = await asyncio.gather(*(crew.hire(f"{name}-{n}", token) for n, token in enumerate(tokens)))

        def drain() -> None:
            for worker in workers:
                worker.drain()

        on_stop(drain)
        gc.freeze()
        gc.disable()  # a pause of this process would hold up workers that are processes of their own elsewhere
        await asyncio.gather(*(worker.run() for worker in workers))
    finally:
        await crew.close()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5:]))
