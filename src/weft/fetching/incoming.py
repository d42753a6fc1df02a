"""An answer while it comes in: what may come is limited before it is kept."""

from __future__ import annotations

import time
from typing import BinaryIO

from weft.fetching.decoding import Decoder, at_once, layers
from weft.fetching.exchange import NoAnswer

MOST_HEADERS = 200
LARGEST_HEAD = 256 << 10
MOST_INTERIM = 20
"""Answers such as 100 Continue before the real one."""
PIECE = 4_096
STREAMED_FROM = 256 << 10
"""A body that is longer is decompressed while it comes, so that a bomb is stopped early."""


class Incoming:
    """Collects one answer. Each of its methods may raise ``NoAnswer``, which ends the connection."""

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
            raise NoAnswer("protocol", f"the server sent more than {MOST_INTERIM} answers that are none")

    def begin(self) -> None:
        """All headers are there, which are limited in size until then."""
        if len(self.headers) > MOST_HEADERS:
            raise NoAnswer("headers", f"the answer has more than {MOST_HEADERS} headers")
        for name, value in self.headers:
            if name == b"content-length" and value.isdigit() and int(value[:20]) > self._largest:
                if self._begin_suffices or self.status in (204, 304):  # which have no body whatever they say
                    continue
                raise NoAnswer("too_large", f"the body is said to have {value[:20].decode()} bytes, more than allowed")
            if name == b"content-encoding":
                self._compressed += b"," + value if self._compressed else value
        if self._sink is not None:
            self._stream()

    def body(self, data: bytes) -> None:
        self.raw_size += len(data)
        if self.raw_size > self._largest:
            self._crumbs += data[: self._largest]
            raise NoAnswer("too_large", f"the body is larger than {self._largest} bytes")
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
