"""The network between a process and a server, and how to cut it.

As root the process lives in a network namespace, and the link to it goes down: its packets vanish, as when somebody
pulls the plug. For others a relay stands between the two and stops passing anything on.
"""

from __future__ import annotations

import asyncio
import os
from types import TracebackType

from experiments.namespace import Namespace


class Cable:
    """Carries connections to one port of this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._namespace = Namespace() if os.geteuid() == 0 else None
        self._flows = asyncio.Event()
        self._flows.set()
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def host(self) -> str:
        """The address by which the process reaches the server."""
        return self._namespace.host if self._namespace else "127.0.0.1"

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that runs at the other end."""
        return self._namespace.prefix if self._namespace else []

    def cut(self) -> None:
        self._flows.clear()
        if self._namespace:
            self._namespace.unplug()

    def mend(self) -> None:
        self._flows.set()
        if self._namespace:
            self._namespace.mend()

    async def __aenter__(self) -> Cable:
        if self._namespace:
            self._namespace.__enter__()
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
        if self._namespace:
            self._namespace.__exit__(kind, error, at)

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
            if self._namespace is None:
                await self._flows.wait()
            sink.write(data)
            await sink.drain()
        sink.close()
