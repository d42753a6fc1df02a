"""One connection that speaks HTTP/2: several requests at a time, with the limits that HTTP/1.1 has."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from weft.fetching.http1 import SPARE_BYTES
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

WINDOW = 1 << 20
"""Bytes that a server may send on a stream before it hears that they have come."""
MOST_STREAMS = 100
MOST_WORDS = 1_000
"""Frames that are about the connection and not about an answer, from one answer to the next."""
FRAME = 40
"""What a frame weighs besides what it carries, so that empty ones are not for nothing."""


class Http2Stream:
    """One request and what has come back."""

    __slots__ = ("head", "incoming", "received", "status", "waiter")

    def __init__(self, incoming: ResponseReader, waiter: asyncio.Future[RawResponse]) -> None:
        self.incoming, self.waiter = incoming, waiter
        self.status, self.received, self.head = 0, 0, b""


class Http2Connection(asyncio.Protocol):
    """A connection that is shared by all who ask one server."""

    def __init__(self, pool: ConnectionPool, route: ServerRoute) -> None:
        self._pool, self.route = pool, route
        self._transport: asyncio.Transport | None = None
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=False))
        self._streams: dict[int, Http2Stream] = {}
        self._room_to_send: asyncio.Future[None] | None = None
        self._asked = self._words = 0
        self._heard_at = 0.0
        self.address = ""
        self.counted = False
        self.idle_since = 0.0
        self.busy = 0
        """Requests that are under way or about to be."""
        self.closed = False
        """Nothing new is asked here; what is under way may still end well."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        settings = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_HEADER_LIST_SIZE: LARGEST_HEAD,
        }
        self._h2.local_settings = Settings(client=True, initial_values=settings)
        self._h2.decoder.max_header_list_size = LARGEST_HEAD
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(MOST_STREAMS * WINDOW // 4)
        self._flush()

    @property
    def has_room(self) -> bool:
        return not self.closed and self.busy < min(MOST_STREAMS, self._h2.remote_settings.max_concurrent_streams)

    async def ask(self, sending: RawRequest, incoming: ResponseReader, deadline: float) -> RawResponse:
        """Send a request and wait for the whole answer; who stops waiting ends the stream."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[RawResponse] = loop.create_future()
        began = loop.time()
        number = 0
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, _headers(sending), end_stream=not sending.body)
            self._streams[number] = Http2Stream(incoming, waiter)
            self._asked += 1
            self._flush()
            async with asyncio.timeout_at(deadline):
                if sending.body:
                    await self._send(number, sending.body, waiter)
                return await waiter
        except TimeoutError:
            raise DeadlineExceeded() from None
        except H2Error as problem:
            self.closed = True
            raise FetchError("protocol", f"the request cannot be sent over HTTP/2: {problem}") from problem
        finally:
            if self._streams.pop(number, None) is not None:
                self._reset(number)
                self.closed = self.closed or self._heard_at < began

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
            self._flush()
        except H2Error as problem:
            self._fail_all(FetchError("protocol", f"the answer is no HTTP/2: {problem or type(problem).__name__}"))
        if self._words > MOST_WORDS:
            self._fail_all(FetchError("protocol", "the server talks about the connection and gives no answer"))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        for stream in list(self._streams.values()):
            fresh = self._asked == 1 or stream.received
            _settle(
                stream,
                FetchError("cut", "the connection was closed in the middle of the answer")
                if fresh
                else StaleConnection(),
            )
        self._streams.clear()
        self._wake_sender()
        self._pool.lost(self)

    def _take(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self._end(event)
        elif isinstance(
            event, ResponseReceived | DataReceived | InformationalResponseReceived | StreamEnded | StreamReset
        ):
            stream = self._streams.get(event.stream_id)
            if isinstance(event, DataReceived) and event.flow_controlled_length:
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if stream is None:
                self._words += 1
                return
            try:
                self._follow(stream, event)
            except FetchError as problem:
                del self._streams[event.stream_id]
                self._reset(event.stream_id)
                _settle(stream, problem)
        else:
            self._words += 1
            if isinstance(event, WindowUpdated | RemoteSettingsChanged):
                self._wake_sender()

    def _follow(self, stream: Http2Stream, event: Event) -> None:
        """What happens to one answer."""
        incoming = stream.incoming
        if isinstance(event, InformationalResponseReceived):
            incoming.interim_ended()
        elif isinstance(event, ResponseReceived):
            self._words = 0
            stream.head = _begin(stream, event.headers)
            stream.received += len(stream.head)
            incoming.status = stream.status
            incoming.begin()
        elif isinstance(event, DataReceived):
            stream.received += FRAME + event.flow_controlled_length
            incoming.body(event.data)
            if stream.received > SPARE_BYTES + len(stream.head) + 2 * incoming.raw_size:
                raise FetchError("protocol", "the answer is nearly all frames and no content")
        elif isinstance(event, StreamReset):
            unseen = event.error_code == ErrorCodes.REFUSED_STREAM and not stream.received
            raise (
                StaleConnection()
                if unseen
                else FetchError("cut", "the server ended the stream in the middle of the answer")
            )
        elif isinstance(event, StreamEnded):
            del self._streams[event.stream_id]
            if not stream.waiter.done():
                stream.waiter.set_result(RawResponse(stream.status, "2", stream.head, incoming, stream.received))

    def _end(self, event: ConnectionTerminated) -> None:
        """The server takes no more requests here."""
        self.closed = True
        last = event.last_stream_id or 0
        for number in [each for each in self._streams if each > last]:
            _settle(self._streams.pop(number), StaleConnection())
        if event.error_code != ErrorCodes.NO_ERROR:
            self._fail_all(FetchError("protocol", f"the server ended the connection with error {event.error_code}"))

    async def _send(self, number: int, body: bytes, waiter: asyncio.Future[RawResponse]) -> None:
        """Send a body as fast as the server takes it, or until it has answered."""
        at = 0
        while at < len(body) and not waiter.done():
            size = min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size, len(body) - at)
            if size <= 0:
                self._room_to_send = self._room_to_send or asyncio.get_running_loop().create_future()
                await asyncio.wait((self._room_to_send, waiter), return_when=asyncio.FIRST_COMPLETED)
                continue
            self._h2.send_data(number, body[at : at + size], end_stream=at + size == len(body))
            at += size
            self._flush()

    def _wake_sender(self) -> None:
        if self._room_to_send is not None and not self._room_to_send.done():
            self._room_to_send.set_result(None)
        self._room_to_send = None

    def _reset(self, number: int) -> None:
        try:
            self._h2.reset_stream(number, ErrorCodes.CANCEL)
            self._flush()
        except H2Error:
            pass  # it has ended by itself

    def _fail_all(self, problem: FetchError) -> None:
        for stream in self._streams.values():
            _settle(stream, problem)
        self._streams.clear()
        self.close()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)


def _headers(sending: RawRequest) -> list[tuple[str, str]]:
    place = sending.route.place
    asked = [(":method", sending.method), (":scheme", place.scheme), (":authority", place.authority)]
    length = [("content-length", str(len(sending.body)))] if sending.body else []
    fields = [(name.lower(), value.strip()) for name, value in sending.fields]
    return [*asked, (":path", sending.target), *fields, *length]


def _begin(stream: Http2Stream, headers: object) -> bytes:
    """Take the headers of an answer; return the head that HTTP/1.1 would have had."""
    found = cast(list[tuple[bytes, bytes]], headers)
    for name, value in found:
        if name == b":status":
            stream.status = int(value) if value.isdigit() else 0
        elif not name.startswith(b":"):
            stream.incoming.headers.append((bytes(name), bytes(value)))
    if not 200 <= stream.status <= 999:
        raise FetchError("protocol", "the answer has no status")
    phrase = HTTPStatus(stream.status).phrase if stream.status in HTTPStatus._value2member_map_ else ""
    lines = b"".join(b"%b: %b\r\n" % pair for pair in stream.incoming.headers)
    return f"HTTP/1.1 {stream.status} {phrase}\r\n".encode() + lines + b"\r\n"


def _settle(stream: Http2Stream, problem: FetchError) -> None:
    if not stream.waiter.done():
        stream.waiter.set_exception(problem)
