"""A worker that asks hosts as often as shared limits let it, and the hosts, who note when they are asked.

    python -m experiments.limited '{"limiter": "redis://…", "port": 8080, "hosts": [1, 2], "lines": 4}'

With ``gateway``, ``key`` and ``name`` in the place of ``limiter`` it is a remote worker that asks its gateway.
The moment of a request is that of its arrival in the kernel, so that a busy machine makes no request look late.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from weft.adapters.registry import open_limiter
from weft.crawler.messages import PermitRequest
from weft.errors import GatewayDown
from weft.fetching.throttle import ConcurrencyThrottle, RequestThrottle
from weft.ports import Grant, Rate
from weft.workers.protocol import WorkerInfo
from weft.workers.remote.client import RemoteWorkerClient
from weft.workers.remote.protocol import RemoteProtocol

LATE_SECONDS = 0.03
LONGEST_PLACE_SECONDS = 1.3
"""A place further away is not taken by a remote worker: the limiter may forget it before it is used."""
LONGEST_TRAVEL_SECONDS = 0.06
"""On a busy machine a way may be long in one direction; a place whose moment is so uncertain is not used."""
DEADLINE_SECONDS = 0.5
TIMESTAMPS = 35  # SO_TIMESTAMPNS
LONGEST_ANSWER_SECONDS = 0.05
REMOTE = b"r"


def address_of(host: int) -> str:
    return f"127.0.{1 + host // 200}.{1 + host % 200}"


def key_of(host: int) -> str:
    return f"host:{address_of(host)}"


@dataclass(slots=True)
class Arrival:
    at: float
    """By the kernel's clock."""
    left_at: float = 0.0
    """When it was answered."""
    is_remote: bool = False
    """Whether a remote worker has asked."""


@dataclass(slots=True)
class Hosts:
    """Servers on addresses of their own, all on one port. Each answers after a while."""

    count: int
    port: int = 0
    arrivals: list[list[Arrival]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _listening: list[socket.socket] = field(default_factory=list)

    async def __aenter__(self) -> Hosts:
        for host in range(self.count):
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            line.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)  # those that are accepted have it too
            line.bind((address_of(host), self.port))
            line.listen(1000)
            line.setblocking(False)
            self.port = line.getsockname()[1]
            self.arrivals.append([])
            self._listening.append(line)
            self._begin(self._accept(line, self.arrivals[-1]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in self._listening:
            line.close()

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket, arrivals: list[Arrival]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            line, _ = await loop.sock_accept(listening)
            self._begin(self._answer(line, arrivals))

    async def _answer(self, line: socket.socket, arrivals: list[Arrival]) -> None:
        with line, suppress(OSError):
            line.setblocking(False)
            arrival = await _arrived(line)
            if arrival is None:
                return
            arrivals.append(arrival)
            await asyncio.sleep(random.uniform(0.0, LONGEST_ANSWER_SECONDS))
            arrival.left_at = time.time()
            try:
                line.send(b"!")
            except OSError:  # who asked is gone already
                arrival.left_at = 0.0


async def _arrived(line: socket.socket) -> Arrival | None:
    """The request on a line; None where it was hung up."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(line, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(line)
    data, stamps, *_ = line.recvmsg(64, 1024)
    if not data:
        return None
    seconds, nanoseconds = next(struct.unpack("qq", text[:16]) for _, kind, text in stamps if kind == TIMESTAMPS)
    return Arrival(float(seconds + nanoseconds / 1e9), is_remote=data == REMOTE)


class AtGateway:
    """Places that a remote worker asks its gateway for, in no run that anybody holds."""

    def __init__(self, protocol: RemoteProtocol, worker_id: int) -> None:
        self._protocol, self._worker_id = protocol, worker_id

    @classmethod
    async def joined(cls, order: dict[str, Any]) -> AtGateway:
        protocol = RemoteProtocol(RemoteWorkerClient(order["gateway"], order["key"]))
        card = WorkerInfo(name=order["name"], host="far", pid=os.getpid(), version="0", capacity=1)
        while True:
            with suppress(GatewayDown):
                return cls(protocol, await protocol.join(card))

    async def reserve(self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0) -> Grant:
        asked = PermitRequest(list(keys), min(longest_wait, LONGEST_PLACE_SECONDS))
        grant = await self._protocol.permit(self._worker_id, 1, 1, asked)
        return Grant(False) if grant.travel_seconds > LONGEST_TRAVEL_SECONDS else grant

    def holds(self, grant: Grant) -> bool:
        return grant.granted


class Coming(RequestThrottle):
    """The turns of a remote worker, who may be under way at once with any number of others."""

    @asynccontextmanager
    async def under_way(self, keys: Sequence[str], key: str, deadline_seconds: float) -> AsyncIterator[None]:
        await self.come(keys)
        yield


async def turns_of(order: dict[str, Any]) -> ConcurrencyThrottle | Coming:
    if "gateway" in order:
        return Coming(await AtGateway.joined(order), late_seconds=LATE_SECONDS)
    return ConcurrencyThrottle(open_limiter(order["limiter"]), late_seconds=LATE_SECONDS)


async def work(order: dict[str, Any]) -> None:
    """Ask hosts at random, on several lines, until we are ended, or whoever holds the other end of our input is."""
    logging.disable()
    asyncio.get_running_loop().add_reader(sys.stdin, os._exit, 1)
    turns = await turns_of(order)

    async def go_on() -> None:
        while True:
            host = random.choice(order["hosts"])
            reader, writer = await asyncio.open_connection(address_of(host), order["port"])
            try:
                async with turns.under_way([key_of(host)], key_of(host), DEADLINE_SECONDS):
                    writer.write(
                        REMOTE if "gateway" in order else b"?"
                    )  # at once: nothing else comes between the check and this
                    with suppress(OSError, TimeoutError):
                        async with asyncio.timeout(DEADLINE_SECONDS):
                            await reader.read(1)
                    writer.transport.abort()
            finally:
                writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        for _ in range(order["lines"]):
            group.create_task(go_on())


def rates(hosts: int, slowest: float, fastest: float) -> list[Rate]:
    """Limits from the slowest to the fastest, with bursts of 1 to 3 and 1 to 4 at once."""
    steps = max(1, hosts - 1)
    return [
        Rate(slowest * (fastest / slowest) ** (host / steps), 1.0 + host % 3, 1 + host % 4) for host in range(hosts)
    ]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(work(json.loads(sys.argv[1])))
