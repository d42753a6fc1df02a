"""A process that fetches one page again and again over kept connections, and prints what that cost it.

``python -m bench.fetchers NAME URL COUNT``: milliseconds of processor time for each page, decompressed.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import cast
from urllib.parse import urlsplit

import uvloop
from httptools import HttpResponseParser
from isal import isal_zlib

AT_ONCE = 8
WARM = 100
Fetch = Callable[[], Awaitable[bytes]]


async def with_weft(url: str, measure: Callable[[Fetch], Awaitable[None]]) -> None:
    from weft.address_guard import Guard
    from weft.fetching.egress import Egress
    from weft.fetching.model import FetchRequest

    egress = Egress(Guard(["127.0.0.0/8"]), user_agent="weft", connections_per_host=AT_ONCE)

    async def fetch() -> bytes:
        return (await egress.fetch(FetchRequest(url=url))).body

    await measure(fetch)
    await egress.close()


async def with_aiohttp(url: str, measure: Callable[[Fetch], Awaitable[None]]) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session:

        async def fetch() -> bytes:
            async with session.get(url) as response:
                return await response.read()

        await measure(fetch)


class Bare(asyncio.Protocol):
    """As little as can be: one request that never changes, the parser, and decompression."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._parser = HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def fetch(self) -> bytes:
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport.write(self._request)
        return await self._done

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self._done.set_result(isal_zlib.decompress(b"".join(self._body), 31))


async def with_nothing(url: str, measure: Callable[[Fetch], Awaitable[None]]) -> None:
    parts = urlsplit(url)
    request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept-Encoding: gzip\r\n\r\n".encode()
    loop, free = asyncio.get_running_loop(), asyncio.Queue[Bare]()
    for _ in range(AT_ONCE):
        _, bare = await loop.create_connection(lambda: Bare(request), parts.hostname, parts.port)
        free.put_nowait(bare)

    async def fetch() -> bytes:
        bare = free.get_nowait()
        try:
            return await bare.fetch()
        finally:
            free.put_nowait(bare)

    await measure(fetch)


FETCHERS = {"weft": with_weft, "aiohttp": with_aiohttp, "bare parser": with_nothing}


async def main(name: str, url: str, count: int) -> None:
    async def fetch_some(fetch: Fetch, some: int) -> None:
        for _ in range(some):
            assert len(await fetch()) > 1_000

    async def measure(fetch: Fetch) -> None:
        await fetch_some(fetch, WARM)
        before = time.process_time()
        await asyncio.gather(*(fetch_some(fetch, count // AT_ONCE) for _ in range(AT_ONCE)))
        print((time.process_time() - before) / count * 1000)

    await FETCHERS[name](url, measure)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
