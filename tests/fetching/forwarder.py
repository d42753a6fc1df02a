"""A small proxy: passes requests on, or whole connections, for those who know the password."""

from __future__ import annotations

import asyncio
from types import TracebackType
from urllib.parse import urlsplit


class Forwarder:
    def __init__(self, login: bytes = b"") -> None:
        self._login = login
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: list[bytes] = []
        self.port = 0

    async def __aenter__(self) -> Forwarder:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head)
            if self._login not in head:
                writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
            else:
                await self._pass_on(head, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target = head.split(b" ")[:2]
        parts = urlsplit(f"//{target.decode()}" if method == b"CONNECT" else target.decode())
        there, to_there = await asyncio.open_connection(parts.hostname, parts.port or 80)
        if method == b"CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            to_there.write(head.replace(target, (parts.path or "/").encode(), 1))
        try:
            await asyncio.gather(_pour(reader, to_there), _pour(there, writer))
        finally:
            to_there.close()


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        sink.write(data)
        await sink.drain()
    sink.close()
