"""Workers that reach weft through a gateway, and a line between them that the test cuts."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS
from weft.app import App
from weft.config import Config
from weft.crawler.messages import CrawlTurn, CrawlTurnReply, PermitRequest
from weft.http.application import open_server
from weft.ports import Grant
from weft.runs.model import Ending, Lease
from weft.worker_setup import RemoteWorkerApp, open_remote_worker
from weft.workers.protocol import Heartbeat, HeartbeatReply, LogChunk, WorkerInfo
from weft.workers.remote.client import RemoteWorkerClient
from weft.workers.remote.protocol import RemoteProtocol


@asynccontextmanager
async def gateway(app: App, scheme: str = "http") -> AsyncIterator[str]:
    """The address of a gateway of ``app``."""
    server = open_server(app)
    found = await server.start("127.0.0.1", 0)
    try:
        yield f"{scheme}://127.0.0.1:{found}"
    finally:
        await server.close()


async def join_token(app: App, **fields: object) -> str:
    _, token = await app.keys.create("join", {}, by="test", kind="join", **fields)  # type: ignore[arg-type]
    return token


def far_config(address: str, folder: Path, **fields: object) -> Config:
    settings = {"poll_seconds": 0.05, "heartbeat_seconds": 0.1, "lease_seconds": 15.0, "drain_seconds": 20.0}
    return Config(**{"connect": address, "data_dir": str(folder)} | settings | fields)  # type: ignore[arg-type]


@asynccontextmanager
async def far_away(
    app: App, address: str, name: str = "far", **fields: object
) -> AsyncIterator[tuple[RemoteWorkerApp, asyncio.Task[None]]]:
    """A worker under way that has nothing but an address and a token."""
    folder = Path(app.config.data_dir) / f"{name}-{secrets.token_hex(4)}"
    config = far_config(address, folder, token=await join_token(app), **fields)
    outpost = await open_remote_worker(config, name)
    task = asyncio.create_task(outpost.run())
    try:
        yield outpost, task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_SECONDS)
        assert task.done(), "the worker did not end"
        if not task.cancelled() and (problem := task.exception()):
            raise problem


class Line:
    """A way to the gateway that breaks as the test says: it forwards bytes between two sockets."""

    def __init__(self, address: str) -> None:
        self.address = ""
        self.target = address
        self.cuts = 0
        self.cuts_to_come = 0
        """How many more connections break after some thousand bytes, wherever these end."""
        self.answers_to_lose = 0
        """How many more connections break as the gateway begins to answer."""
        self.delay_seconds = 0.0
        """How long everything is on its way, in each direction."""
        self._chance = random.Random(7)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Line:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        """Break every connection now."""
        for end in self._open:
            end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.removeprefix("http://").partition(":")
        try:
            there, onward = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, onward}
        budget = self._chance.randint(300, 6000)

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_answer: bool) -> None:
            nonlocal budget
            while data := await source.read(1024):
                if is_answer and self.answers_to_lose:
                    self.answers_to_lose -= 1
                    return
                budget -= len(data)
                if budget < 0 and self.cuts_to_come:
                    self.cuts_to_come -= 1
                    self.cuts += 1
                    return
                await asyncio.sleep(self.delay_seconds)
                sink.write(data)
                await sink.drain()

        tasks = [asyncio.ensure_future(carry(reader, onward, False)), asyncio.ensure_future(carry(there, writer, True))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, onward):
                end.transport.abort()
                self._open.discard(end)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Speaker:
    """The protocol through a gateway, for workers of any name: each has a key of its own."""

    def __init__(self, app: App, address: str) -> None:
        self._app, self._address = app, address
        self._by_name: dict[str, RemoteProtocol] = {}
        self._by_id: dict[int, RemoteProtocol] = {}
        self._links: list[RemoteWorkerClient] = []

    async def __aenter__(self) -> Speaker:
        return self

    async def __aexit__(self, *_: object) -> None:
        for link in self._links:
            await link.close()

    async def join(self, card: WorkerInfo) -> int:
        protocol = await self.of(card.name)
        worker_id = await protocol.join(card)
        self._by_id[worker_id] = protocol
        return worker_id

    async def lease(self, worker_id: int, want: int, *, hesitant: bool = False) -> list[Lease]:
        return await (await self._speaking(worker_id)).lease(worker_id, want, hesitant=hesitant)

    async def heartbeat(self, worker_id: int, beat: Heartbeat) -> HeartbeatReply:
        return await (await self._speaking(worker_id)).heartbeat(worker_id, beat)

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        await (await self._speaking(worker_id)).ship(worker_id, chunks)

    async def frontier(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurnReply:
        return await (await self._speaking(worker_id)).frontier(worker_id, run_id, attempt, asked)

    async def permit(self, worker_id: int, run_id: int, attempt: int, asked: PermitRequest) -> Grant:
        return await (await self._speaking(worker_id)).permit(worker_id, run_id, attempt, asked)

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        return await (await self._speaking(worker_id)).finish(worker_id, endings)

    async def of(self, name: str) -> RemoteProtocol:
        """The protocol with the key of the worker ``name``."""
        if name not in self._by_name:
            self._by_name[name] = RemoteProtocol(await self.link(name))
        return self._by_name[name]

    async def link(self, name: str) -> RemoteWorkerClient:
        _, key = await self._app.keys.create(name, {}, by="test", kind="worker")
        self._links.append(RemoteWorkerClient(self._address, key))
        return self._links[-1]

    async def _speaking(self, worker_id: int) -> RemoteProtocol:
        return self._by_id.get(worker_id) or await self.of("stranger")
