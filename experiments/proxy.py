"""Stands between weft and what it depends on, and makes that slow, thin, silent or broken.

A line that fell silent stays so when the fault is over, as behind a firewall that has forgotten it: only its owner's
deadline ends it. How long that took is noted.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType

PIECE = 64
"""Bytes that travel at once on a thin line."""
BYTES_A_SECOND = 1000


class Fault(StrEnum):
    SLOW = "slow"
    """Whatever is said arrives 0.2 to 0.8 s later."""
    THIN = "thin"
    """1 kB a second."""
    SILENT = "silent"
    """It accepts, acknowledges and never answers."""
    BROKEN = "broken"
    """Each answer ends in its middle, with a reset."""


@dataclass(slots=True, eq=False)
class Line:
    """One connection through the proxy, from the side of who made it."""

    writer: asyncio.StreamWriter
    is_dead: bool = False
    asked_at: float | None = None
    """When something was said on it that nobody will answer."""

    def die(self) -> None:
        self.is_dead = True

    def swallow(self) -> None:
        self.asked_at = self.asked_at or time.monotonic()

    def reset(self) -> None:
        line: socket.socket | None = self.writer.get_extra_info("socket")
        if line is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass(slots=True)
class Proxy:
    """Carries connections to one port of this machine."""

    target: int
    fault: Fault | None = None
    port: int = 0
    opened: int = 0
    given_up: list[float] = field(default_factory=list)
    """How long after its first word each silent line was ended by who made it, in seconds."""
    _lines: set[Line] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    def strike(self, fault: Fault) -> None:
        self.fault = fault
        if fault is Fault.SILENT:
            for line in self._lines:
                line.die()

    def mend(self) -> None:
        self.fault = None

    def hang_up(self) -> None:
        """Cut every line; who made it may make another."""
        for line in self._lines:
            line.reset()

    def waiting(self) -> list[float]:
        """For how long each silent line has been waiting for an answer that does not come."""
        now = time.monotonic()
        return [now - line.asked_at for line in self._lines if line.asked_at is not None]

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, Line(writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, line: Line) -> None:
        self.opened += 1
        self._lines.add(line)
        try:
            if self.fault is Fault.SILENT:
                line.die()
                line.swallow()
                while await reader.read(65_536):
                    pass
            else:
                await self._connect(reader, line)
        except* OSError:
            pass
        finally:
            self._lines.discard(line)
            if line.asked_at is not None:
                self.given_up.append(time.monotonic() - line.asked_at)
            line.writer.close()

    async def _connect(self, reader: asyncio.StreamReader, line: Line) -> None:
        answers, onward = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            async with asyncio.TaskGroup() as group:
                answering = group.create_task(self._answer(answers, line))
                await self._ask(reader, onward, line)
                if line.is_dead:  # who made it has given it up
                    answering.cancel()
        finally:
            onward.close()

    async def _ask(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter, line: Line) -> None:
        while data := await reader.read(65_536):
            await self._pass(data, onward, line)
            if line.is_dead:
                line.swallow()
        onward.close()

    async def _answer(self, answers: asyncio.StreamReader, line: Line) -> None:
        while data := await answers.read(65_536):
            if self.fault is Fault.BROKEN:
                line.writer.write(data[: len(data) // 2])
                await line.writer.drain()
                line.reset()
                return
            await self._pass(data, line.writer, line)
        if not line.is_dead:
            line.writer.close()

    async def _pass(self, data: bytes, sink: asyncio.StreamWriter, line: Line) -> None:
        if self.fault is Fault.SLOW:
            await asyncio.sleep(random.uniform(0.2, 0.8))
        while data and not line.is_dead:
            size = PIECE if self.fault is Fault.THIN else len(data)
            sink.write(data[:size])
            await sink.drain()
            data = data[size:]
            if data:
                await asyncio.sleep(size / BYTES_A_SECOND)
