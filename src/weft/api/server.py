"""Listens for requests with uvicorn, in the event loop and under the signals of the process that it is part of."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from weft.api.lines import ImpatientProtocol
from weft.errors import Misconfigured

REFUSED_SOCKET = "ASGI callable returned without completing handshake."
"""What uvicorn complains of when a WebSocket was refused with an answer; any stranger could fill the log with it."""

logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != REFUSED_SOCKET)

KEEP_ALIVE_SECONDS = 60
LARGEST_FRAME = 64 * 1024
"""Bytes of a message on a WebSocket that are taken in at all; clients have little to say there."""
DRAIN_SECONDS = 10


class Server:
    """Serves one ASGI application until it is closed."""

    def __init__(self, application: Any, *, before_close: Callable[[], None] = lambda: None, **options: Any) -> None:
        self._options: dict[str, Any] = {
            "http": ImpatientProtocol,
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "server_header": False,
            "date_header": True,
            "timeout_keep_alive": KEEP_ALIVE_SECONDS,
            "ws_max_size": LARGEST_FRAME,
            "ws_per_message_deflate": False,  # events are small, and live pages come compressed once for all readers
            "timeout_graceful_shutdown": DRAIN_SECONDS,
        } | options
        self._application, self._before_close = application, before_close
        self._server: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chose where it was 0."""
        config = uvicorn.Config(self._application, **self._options)
        config.load()
        line = _listening(host, port)
        self._server = _Uvicorn(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[line]))
        up = asyncio.create_task(self._server.is_up.wait())
        await asyncio.wait({up, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._serving.done():
            await self._serving
        return int(line.getsockname()[1])

    async def close(self) -> None:
        """Answer what was asked already, and nothing more."""
        if self._server is not None and self._serving is not None:
            self._before_close()
            self._server.should_exit = True
            await self._serving


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's own business."""
        yield


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        line = socket.socket(found[0], found[1], found[2])
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.bind(found[4])
        line.listen(2048)
        line.setblocking(False)
    except OSError as problem:
        raise Misconfigured(
            f"port {port} on {host} cannot be used: {problem.strerror}; choose another with --port"
        ) from problem
    return line
