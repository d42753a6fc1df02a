"""Undoing a Content-Encoding, never making more than is allowed: a small body may unfold to gigabytes."""

from __future__ import annotations

import importlib
import re
import zlib
from types import ModuleType
from typing import Any, Protocol

from weft.fetching.model import FetchError

_zlib: ModuleType
_brotli: ModuleType | None
try:
    from isal import isal_zlib as _zlib
except ImportError:  # a machine that it was not built for
    _zlib = zlib
try:
    _brotli = importlib.import_module("brotli")
except ImportError:
    _brotli = None

MOST_LAYERS = 2
MOST_TIMES = 1_032
"""How much larger than its compressed form anything can be."""
MOST_MEMBERS = 1_000
"""Pieces that a gzip body may be put together of."""
_member = re.compile(rb"\x1f\x8b\x08").search
"""How each of them begins; a pattern finds it in half the time."""
_NONE = ("", "identity")
_ERRORS: tuple[type[Exception], ...] = (zlib.error, _zlib.error, *([_brotli.error] if _brotli is not None else []))


class DecodingLayer(Protocol):
    def feed(self, data: bytes, most: int) -> bytes:
        """At most ``most`` further bytes; there may be more to come where it gives all of them."""

    @property
    def ended(self) -> bool:
        """Whether the last byte of the content was seen."""


class Decoder:
    """Undoes all layers of a body, and raises ``FetchError`` where it becomes larger than ``largest``."""

    def __init__(self, encoding: str, largest: int) -> None:
        self._layers = layers(encoding)
        self._largest, self._made = largest, [0] * len(self._layers)

    def feed(self, data: bytes) -> bytes:
        for at, layer in enumerate(self._layers):
            if not data:
                return b""
            try:
                data = layer.feed(data, self._largest + 1 - self._made[at])
            except _ERRORS as problem:
                raise FetchError("protocol", f"the body cannot be decompressed: {problem}") from problem
            self._made[at] += len(data)
            if self._made[at] > self._largest:
                raise FetchError("too_large", f"the body is larger than {self._largest} bytes when it is decompressed")
        return data

    def finish(self) -> None:
        """Raise where the end of the content is missing, unless there was none at all."""
        for layer, made in zip(self._layers, self._made, strict=True):
            if made and not layer.ended:
                raise FetchError("cut", "the compressed body has no end")


def at_once(data: bytes, largest: int) -> bytes | None:
    """A small gzip body decompressed in one step, which takes half the time; None: it may be more than one can say."""
    if len(data) * MOST_TIMES > largest or _member(data, 3):
        return None
    size = int.from_bytes(data[-4:], "little")
    try:
        made: bytes = _zlib.decompress(data, 31, min(size, largest) or 1)
    except _ERRORS:
        return None
    return made if len(made) == size else None  # something stands behind it


def layers(encoding: str) -> list[DecodingLayer]:
    """Those of a Content-Encoding, outermost first."""
    if encoding == "gzip":
        return [_Gzip()]
    names = [name for each in encoding.lower().split(",") if (name := each.strip()) not in _NONE]
    if len(names) > MOST_LAYERS:
        raise FetchError("protocol", f"the body is compressed {len(names)} times; at most {MOST_LAYERS} are undone")
    return [_layer(name) for name in reversed(names)]


def _layer(name: str) -> DecodingLayer:
    if name in ("gzip", "x-gzip"):
        return _Gzip()
    if name == "deflate":
        return _Deflate()
    if name == "br" and _brotli is not None:
        return _Brotli()
    raise FetchError("protocol", f"the body is compressed with {name[:50]!r}; gzip and deflate are undone")


class _Gzip:
    """Members one after the other; what follows them and is none is ignored, as browsers do."""

    def __init__(self) -> None:
        self._inflate = _zlib.decompressobj(31)
        self._members = 0
        self.ended = False

    def feed(self, data: bytes, most: int) -> bytes:
        if self.ended and not data.startswith(b"\x1f"):
            return b""
        if self.ended:
            self._next()
        parts = [self._inflate.decompress(data, _likely(data, most))]
        if self._inflate.unconsumed_tail and len(parts[0]) < most:  # none left would mean no limit
            parts.append(self._inflate.decompress(self._inflate.unconsumed_tail, most - len(parts[0])))
        if not self._inflate.eof:
            return b"".join(parts)
        most -= sum(map(len, parts[:-1]))
        while (rest := self._inflate.unused_data).startswith(b"\x1f\x8b") and (most := most - len(parts[-1])) > 0:
            self._next()
            parts.append(self._inflate.decompress(rest, most))
            if not self._inflate.eof:
                return b"".join(parts)
        self.ended = True
        return b"".join(parts)

    def _next(self) -> None:
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise FetchError("protocol", f"the body is put together of more than {MOST_MEMBERS} compressed pieces")
        self._inflate, self.ended = _zlib.decompressobj(31), False


def _likely(data: bytes, most: int) -> int:
    """How much a whole gzip file says that it holds, where that can be: room made in one piece saves time."""
    said = int.from_bytes(data[-4:], "little") + 1
    return said if 64 < said < min(most, 1_000 * len(data)) else most


class _Deflate:
    """With or without the two bytes in front: both are meant by that name."""

    def __init__(self) -> None:
        self._inflate: Any = None

    @property
    def ended(self) -> bool:
        return self._inflate is not None and bool(self._inflate.eof)

    def feed(self, data: bytes, most: int) -> bytes:
        if self._inflate is None:
            self._inflate = _zlib.decompressobj(15 if data[0] & 0x0F == 8 else -15)
        return b"" if self._inflate.eof else bytes(self._inflate.decompress(data, most))


class _Brotli:
    def __init__(self) -> None:
        assert _brotli is not None
        self._inflate = _brotli.Decompressor()

    @property
    def ended(self) -> bool:
        return bool(self._inflate.is_finished())

    def feed(self, data: bytes, most: int) -> bytes:
        made = [self._inflate.process(data, output_buffer_limit=most)]
        while not self._inflate.can_accept_more_data() and (most := most - len(made[-1])) > 0:
            made.append(self._inflate.process(b"", output_buffer_limit=most))
        return b"".join(made)
