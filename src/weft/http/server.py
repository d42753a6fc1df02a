"""The HTTP server: uvicorn with a limit for the time and size of a request's head."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from asyncio import TimerHandle, Transport
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from weft.errors import Misconfigured
from weft.http.access_log import tell_unread

HEAD_SECONDS = 30.0
"""How long a request's head may take."""

LONGEST_HEAD = 64 * 1024
"""Bytes that are read of a head that does not end; the gateway refuses shorter ones with a problem document."""


class HeadTimeoutProtocol(HttpToolsProtocol):
    """uvicorn's protocol with an end to the patience for a request's head."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._alarm: TimerHandle | None = None
        self._unread = 0
        self._has_begun = False
        self._expected_at = 0.0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm_down()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._alarm is not None:
            self._unread += len(data)
        super().data_received(data)
        if self._alarm is not None and self._unread > LONGEST_HEAD:
            self._let_go(431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_begun = True
        if self._alarm is None:
            self._expect_a_head()

    def on_headers_complete(self) -> None:
        self._has_begun = False
        self._calm_down()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._calm_down()
        self._tell(400)
        super().send_400_response(msg)

    def _expect_a_head(self) -> None:
        self._unread = 0
        self._expected_at = self.loop.time()
        self._alarm = self.loop.call_later(HEAD_SECONDS, self._let_go, 408)

    def _calm_down(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _let_go(self, status: int) -> None:
        """Say why, but only to who has begun to ask: others would take it for the answer to their next request."""
        self._calm_down()
        if self._has_begun and not self.transport.is_closing():
            self.transport.write(STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
            self._tell(status)
        self.transport.close()

    def _tell(self, status: int) -> None:
        """Write the line of the access log: no application sees the request, which writes the others."""
        method = self.parser.get_method().decode("latin-1") if self._has_begun and self.url else ""
        tell_unread(method, status, self.loop.time() - self._expected_at)


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
            "http": HeadTimeoutProtocol,
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
