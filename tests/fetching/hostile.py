"""What servers do that mean no good, or know no better; each has a path of its own."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from functools import lru_cache

from tests.fetching.raw_server import Answer, Close, Reset, page

OK = b"HTTP/1.1 200 OK\r\n"
FOR_EVER = 3600.0


@lru_cache
def bomb(megabytes: int) -> bytes:
    """So much of nothing, in a thousandth of the space; one piece again and again, because making it takes time too."""
    deflate = zlib.compressobj(9, wbits=31)
    first = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    piece = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return first + piece * (megabytes - 1) + deflate.flush()


async def endless_headers(request: bytes) -> AsyncIterator[bytes]:
    yield OK
    while True:
        yield b"X-Header: value\r\n" * 1000


async def one_endless_header(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"X-Header: "
    while True:
        yield b"v" * 16_000


async def endless_continue(request: bytes) -> AsyncIterator[bytes]:
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n" * 100


async def endless_body(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"\r\n"
    while True:
        yield b"x" * 65_536


async def endless_chunks(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"10000\r\n" + b"x" * 65_536 + b"\r\n"


async def endless_chunk_extension(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n1"
    while True:
        yield b";extension=value" * 1000


async def endless_small_chunks(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"8\r\n12345678\r\n" * 1000


async def endless_tiny_chunks(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"2\r\n12\r\n" * 1000


async def endless_trailers(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    while True:
        yield b"X-Trailer: value\r\n" * 1000


async def body_by_drops(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Content-Length: 1000\r\n\r\n"
    while True:
        await asyncio.sleep(0.05)
        yield b"x"


async def headers_by_drops(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"X-Header: "
    while True:
        await asyncio.sleep(0.05)
        yield b"v"


async def silence(request: bytes) -> AsyncIterator[bytes]:
    await asyncio.sleep(FOR_EVER)
    yield b""


async def closed_at_once(request: bytes) -> AsyncIterator[bytes]:
    raise Close
    yield b""


async def reset_at_once(request: bytes) -> AsyncIterator[bytes]:
    raise Reset
    yield b""


async def reset_in_the_middle(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Content-Length: 1000\r\n\r\nhalf"
    raise Reset


async def truncated(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Content-Length: 1000\r\n\r\nhalf"
    raise Close


async def truncated_chunks(request: bytes) -> AsyncIterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
    raise Close


async def garbage(request: bytes) -> AsyncIterator[bytes]:
    yield bytes(range(256)) * 10
    raise Close


async def without_headers(request: bytes) -> AsyncIterator[bytes]:
    yield b"<html>as in 1991</html>"
    raise Close


def encoded(data: bytes, encoding: bytes = b"gzip") -> bytes:
    return page(data, b"Content-Encoding: " + encoding)


BEHAVIOURS: dict[str, tuple[Answer, str]] = {
    "/endless-headers": (endless_headers, "headers"),
    "/one-endless-header": (one_endless_header, "headers"),
    "/too-many-headers": (OK + b"X-Header: v\r\n" * 201 + b"Content-Length: 0\r\n\r\n", "headers"),
    "/endless-continue": (endless_continue, "protocol"),
    "/endless-body": (endless_body, "too_large"),
    "/endless-chunks": (endless_chunks, "too_large"),
    "/endless-chunk-extension": (endless_chunk_extension, "protocol"),
    "/endless-small-chunks": (endless_small_chunks, "too_large"),
    "/endless-tiny-chunks": (endless_tiny_chunks, "protocol"),
    "/endless-trailers": (endless_trailers, "protocol"),
    "/body-by-drops": (body_by_drops, "deadline"),
    "/headers-by-drops": (headers_by_drops, "deadline"),
    "/silence": (silence, "deadline"),
    "/bomb": (encoded(bomb(2048)), "too_large"),
    "/small-bomb": (encoded(bomb(16)), "too_large"),
    "/bomb-in-a-bomb": (encoded(gzip.compress(bomb(256)), b"gzip, gzip"), "too_large"),
    "/200-layers": (encoded(b"x", b", ".join([b"gzip"] * 200)), "protocol"),
    "/3-layers": (encoded(b"x", b"gzip, deflate, gzip"), "protocol"),
    "/many-members": (encoded(gzip.compress(b"") * 5000), "protocol"),
    "/no-gzip": (encoded(b"this is no gzip"), "protocol"),
    "/half-a-gzip": (encoded(gzip.compress(bytes(range(256)) * 40)[:-20]), "cut"),
    "/unknown-encoding": (encoded(b"x", b"rot13"), "protocol"),
    "/huge-length": (OK + b"Content-Length: 99999999999\r\n\r\n", "too_large"),
    "/overflowing-length": (OK + b"Content-Length: 99999999999999999999999\r\n\r\n", "protocol"),
    "/negative-length": (OK + b"Content-Length: -1\r\n\r\n", "protocol"),
    "/two-lengths": (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "protocol"),
    "/length-and-chunks": (OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "protocol"),
    "/truncated": (truncated, "cut"),
    "/truncated-chunks": (truncated_chunks, "cut"),
    "/reset-in-the-middle": (reset_in_the_middle, "cut"),
    "/reset-at-once": (reset_at_once, "cut"),
    "/closed-at-once": (closed_at_once, "cut"),
    "/garbage": (garbage, "protocol"),
    "/without-headers": (without_headers, "protocol"),
    "/bad-status": (b"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n", "protocol"),
    "/bare-cr": (OK + b"X-Header: a\rb\r\nContent-Length: 0\r\n\r\n", "protocol"),
    "/other-protocol": (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "protocol"),
    "/bad-chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "protocol"),
}
"""What is asked for, what comes, and how that must end."""

ANSWERS: dict[str, Answer] = {path: answer for path, (answer, _) in BEHAVIOURS.items()}
