"""Connections that do not wait for ever: whoever is slow to say what they want, or says too much, is let go."""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEAD_SECONDS = 30.0
"""How long a request's head may take."""

LONGEST_HEAD = 64 * 1024
"""Bytes that are read of a head that does not end; the gateway refuses shorter ones with a problem document."""


class ImpatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol with an end to the patience for a request's head."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._alarm: TimerHandle | None = None
        self._unread = 0
        self._has_begun = False

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

    def _expect_a_head(self) -> None:
        self._unread = 0
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
        self.transport.close()
