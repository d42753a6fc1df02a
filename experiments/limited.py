"""A worker that asks hosts as often as shared limits let it, and the hosts, who note when they are asked.

    python -m experiments.limited '{"limiter": "redis://…", "port": 8080, "hosts": [1, 2], "lines": 4}'

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
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from weft.adapters.registry import open_limiter
from weft.crawl_ports import Rate
from weft.fetching.limits import Crossings

LATE_SECONDS = 0.03
DEADLINE_SECONDS = 0.5
TIMESTAMPS = 35  # SO_TIMESTAMPNS
LONGEST_ANSWER_SECONDS = 0.05


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
            at = await _arrived(line)
            if at is None:
                return
            arrivals.append(arrival := Arrival(at))
            await asyncio.sleep(random.uniform(0.0, LONGEST_ANSWER_SECONDS))
            arrival.left_at = time.time()
            try:
                line.send(b"!")
            except OSError:  # who asked is gone already
                arrival.left_at = 0.0


async def _arrived(line: socket.socket) -> float | None:
    """When the request on a line came in; None where it was hung up."""
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
    return float(seconds + nanoseconds / 1e9)


async def work(order: dict[str, Any]) -> None:
    """Ask hosts at random, on several lines, until we are ended, or whoever holds the other end of our input is."""
    logging.disable()
    asyncio.get_running_loop().add_reader(sys.stdin, os._exit, 1)
    limiter = open_limiter(order["limiter"])
    turns = Crossings(limiter, late_seconds=LATE_SECONDS)

    async def go_on() -> None:
        while True:
            host = random.choice(order["hosts"])
            reader, writer = await asyncio.open_connection(address_of(host), order["port"])
            try:
                async with turns.under_way([key_of(host)], key_of(host), DEADLINE_SECONDS):
                    writer.write(b"?")  # at once: nothing else comes between the check and this
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
