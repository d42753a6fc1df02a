"""A request as it is sent and a response as it arrives, within limits, for HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

from weft.crawl_spec import HEADER_NAME, HEADER_VALUE, RESERVED_HEADERS
from weft.fetching.decoding import Decoder, at_once, layers
from weft.fetching.dialling import ServerRoute
from weft.fetching.model import FetchError, FetchRequest

MOST_HEADERS = 200
LARGEST_HEAD = 256 << 10
MOST_INTERIM = 20
"""Answers such as 100 Continue before the real one."""
PIECE = 4_096
STREAMED_FROM = 256 << 10
"""A body that is longer is decompressed while it comes, so that a bomb is stopped early."""


class ResponseReader:
    """Collects one answer. Each of its methods may raise ``FetchError``, which ends the connection."""

    __slots__ = (
        *("_begin_suffices", "_compressed", "_crumbs", "_decoder", "_largest", "_made", "_parts", "_sink"),
        *("asked_at", "headers", "interim", "raw_size", "status"),
    )

    def __init__(self, largest: int, sink: BinaryIO | None = None, *, begin_suffices: bool = False) -> None:
        self.asked_at = 0.0
        """When the request was written, by ``time.perf_counter``."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.interim = 0
        self.raw_size = 0
        self._largest, self._sink, self._begin_suffices = largest, sink, begin_suffices
        self._parts: list[bytes] = []
        self._crumbs = bytearray()
        """Small pieces, until there are enough of them: a body of millions would take many times its size."""
        self._made: list[bytes] = []
        self._decoder: Decoder | None = None
        self._compressed = b""

    def was_sent(self) -> None:
        """The request has left this process, a moment ago at most."""
        self.asked_at = time.perf_counter()

    def interim_ended(self) -> None:
        """That was no answer yet, such as 100 Continue."""
        self.interim += 1
        self.headers = []
        if self.interim > MOST_INTERIM:
            raise FetchError("protocol", f"the server sent more than {MOST_INTERIM} answers that are none")

    def begin(self) -> None:
        """All headers are there, which are limited in size until then."""
        if len(self.headers) > MOST_HEADERS:
            raise FetchError("headers", f"the answer has more than {MOST_HEADERS} headers")
        for name, value in self.headers:
            if name == b"content-length" and value.isdigit() and int(value[:20]) > self._largest:
                if self._begin_suffices or self.status in (204, 304):  # which have no body whatever they say
                    continue
                raise FetchError(
                    "too_large", f"the body is said to have {value[:20].decode()} bytes, more than allowed"
                )
            if name == b"content-encoding":
                self._compressed += b"," + value if self._compressed else value
        if self._sink is not None:
            self._stream()

    def body(self, data: bytes) -> None:
        self.raw_size += len(data)
        if self.raw_size > self._largest:
            self._crumbs += data[: self._largest]
            raise FetchError("too_large", f"the body is larger than {self._largest} bytes")
        if self._crumbs or (len(data) < PIECE and self._parts):
            self._crumbs += data
            if len(self._crumbs) > STREAMED_FROM // 4:
                self._sweep_up()
        else:
            self._take(data)

    def _sweep_up(self) -> None:
        data = bytes(self._crumbs)
        self._crumbs.clear()
        self._take(data)

    def _take(self, data: bytes) -> None:
        if self._sink is None:
            self._parts.append(data)
        if self._decoder is not None:
            self._keep(self._decoder.feed(data))
        elif self.raw_size > STREAMED_FROM and self._compressed:
            self._stream()

    @property
    def begun(self) -> bytes | None:
        """The begin of a body that is too large, where that suffices; None: it does not."""
        if not self._begin_suffices or not self.status:
            return None
        data = b"".join(self._parts) + self._crumbs
        for layer in layers(self._compressed.decode("latin-1")):
            data = layer.feed(data, self._largest)
        return data[: self._largest]

    def finish(self) -> tuple[bytes, bytes]:
        """The body as it came and decompressed; both are empty where it went elsewhere."""
        if self._crumbs:
            self._sweep_up()
        if self._sink is not None:
            assert self._decoder is not None
            self._decoder.finish()
            return b"", b""
        parts = self._parts
        raw = parts[0] if len(parts) == 1 else b"".join(parts)
        if not self._compressed or not raw:
            return raw, raw
        if self._decoder is None and self._compressed == b"gzip" and (body := at_once(raw, self._largest)) is not None:
            return raw, body
        if self._decoder is None:
            self._stream()
        assert self._decoder is not None
        self._decoder.finish()
        return raw, self._made[0] if len(self._made) == 1 else b"".join(self._made)

    def _stream(self) -> None:
        """Decompress what is there, and from now on what comes."""
        self._decoder = Decoder(self._compressed.decode("latin-1"), self._largest)
        for part in self._parts:
            self._keep(self._decoder.feed(part))

    def _keep(self, made: bytes) -> None:
        if self._sink is not None:
            self._sink.write(made)
        elif made:
            self._made.append(made)


DEFAULT_HEADERS = (("accept", "*/*"), ("accept-encoding", "gzip, deflate"))
_METHOD = re.compile(r"[A-Z]{1,20}").fullmatch

Fields = tuple[tuple[str, str], ...]


class RawResponse:
    """What came back over the wire."""

    __slots__ = ("head", "http", "incoming", "received", "status")

    def __init__(self, status: int, http: str, head: bytes, incoming: ResponseReader, received: int) -> None:
        self.status, self.http, self.head, self.incoming, self.received = status, http, head, incoming, received


class StaleConnection(FetchError):
    """A connection that was kept had ended before the server saw the request, so it may be sent again."""

    def __init__(self) -> None:
        super().__init__("cut", "the connection was closed before an answer")


class DeadlineExceeded(FetchError):
    """The deadline has passed."""

    def __init__(self) -> None:
        super().__init__("deadline", "there was no whole answer by the deadline")


@dataclass(slots=True)
class RawRequest:
    """One request."""

    method: str
    route: ServerRoute
    target: str
    fields: Fields
    """Headers in order, without those that follow from the request."""
    head: bytes
    """The whole head as HTTP/1.1 has it."""
    body: bytes


class RequestRenderer:
    """Makes requests out of what is asked for."""

    def __init__(self, user_agent: str) -> None:
        self._usual = (("user-agent", user_agent), *DEFAULT_HEADERS)
        self._lines = lru_cache(1_000)(self._rendered)

    def sending(self, ask: FetchRequest, route: ServerRoute, target: str) -> RawRequest:
        fields, lines = self._lines(ask.headers)
        place, proxy = route.place, route.proxy
        if proxy is None:
            head = f"{ask.method} {target} HTTP/1.1\r\nhost: {place.authority}\r\n{lines}"
        else:
            head = f"{ask.method} {_towards(route, target)} HTTP/1.1\r\nhost: {place.authority}\r\n{lines}"
            if proxy.login and not route.tunnelled:
                head += f"proxy-authorization: {proxy.login}\r\n"
        if ask.method != "GET":
            head += _length(ask)
        return RawRequest(ask.method, route, target, fields, (head + "\r\n").encode("latin-1"), ask.body)

    def _rendered(self, headers: Fields) -> tuple[Fields, str]:
        """Headers as they are sent; given ones stand in for the usual ones."""
        given = {name.lower() for name, _ in headers}
        fields = (*(each for each in self._usual if each[0] not in given), *headers)
        for name, value in fields:
            if not HEADER_NAME(name) or not HEADER_VALUE(value) or name.lower() in RESERVED_HEADERS:
                raise FetchError("url", f"the header {name[:50]!r} cannot be sent as it is given")
        return fields, "".join(f"{name}: {value}\r\n" for name, value in fields)


def _towards(route: ServerRoute, target: str) -> str:
    """What a proxy is told, unless it only passes on what is said."""
    return target if route.tunnelled else f"http://{route.place.authority}{target}"


def _length(ask: FetchRequest) -> str:
    if not _METHOD(ask.method):
        raise FetchError("url", f"there is no method {ask.method[:20]!r}")
    return f"content-length: {len(ask.body)}\r\n" if ask.body or ask.method != "HEAD" else ""
