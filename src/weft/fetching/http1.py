"""One connection that speaks HTTP/1.1: one request at a time, with limits on what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from weft.fetching.model import FetchError
from weft.fetching.transfer import (
    LARGEST_HEAD,
    DeadlineExceeded,
    RawRequest,
    RawResponse,
    ResponseReader,
    StaleConnection,
)

if TYPE_CHECKING:
    from weft.fetching.connections import ConnectionPool
    from weft.fetching.dialling import ServerRoute

SPARE_BYTES = 256 << 10
"""What frames may add to a body besides its own size."""


class Http1Connection(asyncio.Protocol):
    """A connection to one server. It is either idle or waits for one answer."""

    def __init__(self, pool: ConnectionPool, route: ServerRoute) -> None:
        self._pool, self.route = pool, route
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self._waiter: asyncio.Future[RawResponse] | None = None
        self._incoming: ResponseReader | None = None
        self._head: bytes | bytearray = b""
        self._heading = True
        self._without_body = False
        self._status = 0
        self._received = 0
        self._problem: FetchError | None = None
        self._asked = 0
        self.address = ""
        self.counted = False
        """Whether the pool has it among its connections."""
        self.busy = 0
        self.idle_since = 0.0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, sending: RawRequest, incoming: ResponseReader, deadline: float) -> RawResponse:
        """Send a request and wait for the whole answer; who stops waiting ends the connection."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_at(deadline, self._expire)
        self._incoming, self._without_body = incoming, sending.method == "HEAD"
        self._head, self._heading, self._received, self._problem = b"", True, 0, None
        self._asked += 1
        self._transport.write(sending.head + sending.body if sending.body else sending.head)
        try:
            return await self._waiter
        finally:
            timer.cancel()
            if self._incoming is not None:
                self.close()
            self._waiter, self._head = None, b""  # an idle connection keeps nothing of what it brought

    def close(self) -> None:
        self.closed = True
        self._incoming = None
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        if incoming is None:  # nobody asked
            self.close()
            return
        self._received += len(data)
        if self._heading:
            self._head = bytearray(self._head) + data if self._head else data
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as problem:
            self._fail(self._problem or FetchError("protocol", f"the answer is no HTTP: {problem}"))
        else:
            if self._heading and len(self._head) > LARGEST_HEAD:
                self._fail(FetchError("headers", f"the headers are larger than {LARGEST_HEAD} bytes"))
            elif self._received > SPARE_BYTES + len(self._head) + 2 * incoming.raw_size:
                self._fail(FetchError("protocol", "the answer is nearly all frames and no content"))

    def on_message_begin(self) -> None:
        if self._incoming is None:  # nobody asked
            self.closed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._heading and self._incoming is not None:
            self._incoming.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        incoming = self._incoming
        if incoming is None:
            return
        self._status = self._parser.get_status_code()
        if 100 <= self._status < 200 and self._status != 101:
            self._do(incoming.interim_ended)
            return
        self._heading = False
        incoming.status = self._status
        self._do(incoming.begin if self._status != 101 else _refuse_other)
        if self._without_body:
            self.closed = True  # the parser waits for a body that never comes
            self._done()

    def on_body(self, data: bytes) -> None:
        if self._incoming is not None:
            self._do(self._incoming.body, data)

    def on_message_complete(self) -> None:
        if self._incoming is not None and not self._heading:
            self._done()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._incoming is not None:
            if error is None and self._ends_with_connection():
                self._done()
            elif self._asked > 1 and not self._received:
                self._fail(StaleConnection())
            else:
                when = "in the middle of the answer" if self._received else "before an answer"
                self._fail(FetchError("cut", f"the connection was closed {when}"))
        self._pool.lost(self)

    def _ends_with_connection(self) -> bool:
        """Whether the body is all that comes until the connection is closed."""
        if self._heading or self._incoming is None:
            return False
        names = {name for name, _ in self._incoming.headers}
        return b"content-length" not in names and b"transfer-encoding" not in names

    def _do(self, step: Callable[..., None], *values: Any) -> None:
        """What is raised here comes out of the parser in the clothes of one of its own errors."""
        try:
            step(*values)
        except FetchError as problem:
            self._problem = problem
            raise

    def _done(self) -> None:
        incoming, waiter = self._incoming, self._waiter
        assert incoming is not None
        self._incoming = None
        if not self.closed and not self._parser.should_keep_alive():
            self.closed = True
        if waiter is not None and not waiter.done():
            head, http = _head(self._head, incoming.interim), self._parser.get_http_version()
            waiter.set_result(RawResponse(self._status, http, head, incoming, self._received))

    def _expire(self) -> None:
        self._fail(DeadlineExceeded())

    def _fail(self, problem: FetchError) -> None:
        waiter = self._waiter
        self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(problem)


def _refuse_other() -> None:
    raise FetchError("protocol", "the server wants to speak another protocol")


def _head(data: bytes | bytearray, interim: int) -> bytes:
    """The status line and the headers of the last answer at the begin of ``data``."""
    at = 0
    for _ in range(interim):
        at = _end(data, at)
    return bytes(data[at : _end(data, at)])


def _end(data: bytes | bytearray, start: int) -> int:
    """Where the headers end that begin at ``start``."""
    usual = data.find(b"\r\n\r\n", start)
    bare = data.find(b"\n\n", start, usual if usual >= 0 else len(data))
    if bare >= 0:
        return bare + 2
    return usual + 4 if usual >= 0 else len(data)
