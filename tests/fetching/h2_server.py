"""A server that speaks HTTP/2, well or badly."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, WindowUpdated
from h2.exceptions import H2Error

from tests.servers.certificate import self_signed


class Speaker(asyncio.Protocol):
    """One connection; ``answers`` say by path what is done with a request."""

    def __init__(self, server: H2Server) -> None:
        self._server = server
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._unsent: dict[int, bytes] = {}
        self._paths: dict[int, str] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server.speakers.append(self)
        self.h2.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self.h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    headers: Any = event.headers  # h2 calls them bytes, which they are not with a header_encoding
                    self._paths[event.stream_id] = dict(headers)[":path"]
                elif isinstance(event, StreamEnded):
                    path = self._paths[event.stream_id]
                    self._server.requests.append(path)
                    self._server.answers[path](self, event.stream_id)
                elif isinstance(event, DataReceived):
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, WindowUpdated):
                    self._pour()
            self.flush()
        except H2Error:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.ended += 1

    def answer(self, stream: int, body: bytes, *headers: tuple[str, str]) -> None:
        """As it should be."""
        self.h2.send_headers(stream, [(":status", "200"), *headers])
        self._unsent[stream] = body
        self._pour()

    def flush(self) -> None:
        self.transport.write(self.h2.data_to_send())

    def _pour(self) -> None:
        for stream, body in list(self._unsent.items()):
            while body and (size := min(self.h2.local_flow_control_window(stream), 16_384)):
                self.h2.send_data(stream, body[:size])
                body = body[size:]
            self._unsent[stream] = body
            if not body:
                del self._unsent[stream]
                self.h2.end_stream(stream)


class H2Server:
    """On a free port of loopback."""

    def __init__(self, folder: Path, answers: dict[str, Callable[[Speaker, int], None]]) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.speakers: list[Speaker] = []
        self.ended = 0
        self._server: asyncio.Server | None = None
        self._secret = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._secret.load_cert_chain(*self_signed(folder, "localhost"))
        self._secret.set_alpn_protocols(["h2"])

    def url(self, path: str = "/") -> str:
        assert self._server is not None
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{path}"

    async def __aenter__(self) -> H2Server:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Speaker(self), "127.0.0.1", 0, ssl=self._secret)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for speaker in self.speakers:
            speaker.transport.abort()
        await asyncio.sleep(0)
