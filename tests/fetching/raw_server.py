"""A server that sends exactly the bytes that it is told to, and notes who asked for what."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType

Answer = bytes | Callable[[bytes], AsyncIterator[bytes]]
"""What is sent, or what makes it out of the request."""


class Close(Exception):
    """End the connection after what was sent."""


class Reset(Exception):
    """End the connection as a crash would."""


def page(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer as it should be."""
    lines = b"".join(b"%b\r\n" % each for each in headers)
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), lines, body)


class RawServer:
    """On a free port of loopback; one answer for each path, as often as it is asked for."""

    def __init__(self, answers: Mapping[str, Answer], secret: ssl.SSLContext | None = None) -> None:
        self._answers, self._secret = answers, secret
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.port = 0

    def url(self, path: str = "/") -> str:
        return f"http{'s' if self._secret else ''}://127.0.0.1:{self.port}{path}"

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._secret, limit=1 << 20)
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
        self.connections += 1
        self.open += 1
        try:
            while True:
                request = await _request(reader)
                self.requests.append(request)
                await self._answer(request, writer)
        except (Close, OSError, asyncio.IncompleteReadError):
            writer.close()
        except Reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self.open -= 1

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        path = request.split(b" ")[1].decode()
        answer = self._answers.get(path, page(b"there is nothing", status=b"404 Not Found"))
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
            return
        async for data in answer(request):
            writer.write(data)
            await writer.drain()


async def _request(reader: asyncio.StreamReader) -> bytes:
    """The head, and as much of a body as it announces."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line[15:]))
    return head
