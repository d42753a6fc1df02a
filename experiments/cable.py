"""The network between a process and a server, and how to cut it.

As root the process lives in a network namespace, and the link to it goes down: its packets vanish, as when somebody
pulls the plug. For others a relay stands between the two and stops passing anything on.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from types import TracebackType


class Cable:
    """Carries connections to one port of this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._name = f"weft{os.getpid()}{random.randrange(1000)}"[-14:]
        self._subnet = f"10.{random.randrange(200, 250)}.{random.randrange(256)}"
        self._is_real = os.geteuid() == 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def host(self) -> str:
        """The address by which the process reaches the server."""
        return f"{self._subnet}.1" if self._is_real else "127.0.0.1"

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that runs at the other end."""
        return ["ip", "netns", "exec", self._name] if self._is_real else []

    def cut(self) -> None:
        self._flows.clear()
        if self._is_real:
            _ip("link", "set", self._name, "down")

    def mend(self) -> None:
        self._flows.set()
        if self._is_real:
            _ip("link", "set", self._name, "up")

    async def __aenter__(self) -> Cable:
        if self._is_real:
            self._lay()
        self._relay = await asyncio.start_server(self._connected, self.host, 0)
        self.port = int(self._relay.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._relay.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        if self._is_real:
            _ip("netns", "delete", self._name)

    def _lay(self) -> None:
        _ip("netns", "add", self._name)
        _ip("link", "add", self._name, "type", "veth", "peer", "name", "eth0", "netns", self._name)
        _ip("address", "add", f"{self._subnet}.1/30", "dev", self._name)
        _ip("link", "set", self._name, "up")
        _ip("-n", self._name, "address", "add", f"{self._subnet}.2/30", "dev", "eth0")
        _ip("-n", self._name, "link", "set", "eth0", "up")

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pump = asyncio.create_task(self._carry(reader, writer))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back))
                group.create_task(self._pump(there, writer))
        except* OSError:
            pass
        finally:
            writer.close()
            back.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            if not self._is_real:
                await self._flows.wait()
            sink.write(data)
            await sink.drain()
        sink.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, stdin=subprocess.DEVNULL)
