"""A site made for crawlers: many hosts on loopback, every page reachable, the same each time.

Pages have 40 kB and 50 links each; they are made once, compressed, and served from memory, so that the server costs
little. Each page is put together from paragraphs that are compressed already, so that 20,000 of them are made within
seconds. ``python -m bench.site`` serves one until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import struct
import sys
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import uvloop

HOSTS = 50
PAGES = 20_000
LINKS = 50
SIZE = 40_000
BLOCKS, BLOCK_SIZE = 64, 5_000
GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
END_OF_DEFLATE = b"\x03\x00"
TALE = (
    "river stone window garden letter market winter silver harbour engine mountain paper bridge corner candle forest "
    "village summer thread ladder station mirror pocket basket island copper feather valley hammer orchard ribbon tower"
)
WORDS = TALE.split()


@dataclass(slots=True)
class Site:
    """Which pages there are, and what each holds."""

    pages: int = PAGES
    hosts: int = HOSTS
    links: int = LINKS
    size: int = SIZE
    first: int = 1
    """The last number of the first host's address."""
    port: int = 0
    _blocks: list[tuple[bytes, bytes]] = field(default_factory=list, repr=False)

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.{self.first + number}" for number in range(self.hosts)]

    @property
    def per_host(self) -> int:
        return self.pages // self.hosts

    def url(self, host: int, page: int) -> str:
        return f"http://{self.addresses[host]}:{self.port}/{page if page else ''}"

    def seeds(self) -> list[str]:
        return [self.url(host, 0) for host in range(self.hosts)]

    def targets(self, host: int, page: int) -> list[tuple[int, int]]:
        """Where the links of a page lead: below it in its host's tree, then anywhere."""
        last = self.per_host
        below = [number for number in (2 * page + 1, 2 * page + 2) if number < last]
        found = dict.fromkeys((host, number) for number in below)
        chance = random.Random(host * 1_000_003 + page)
        most = min(self.links, self.pages - 1)
        while len(found) < most:
            there = host if chance.random() < 0.85 and len(found) < last else chance.randrange(self.hosts)
            found[there, chance.randrange(last)] = None
        return list(found)

    def html(self, host: int, page: int) -> bytes:
        head, blocks = self._parts(host, page)
        return head + b"".join(text for text, _ in blocks)

    def packed(self, host: int, page: int) -> bytes:
        """The page as gzip."""
        head, blocks = self._parts(host, page)
        begin = zlib.compressobj(6, wbits=-15)
        deflated = begin.compress(head) + begin.flush(zlib.Z_FULL_FLUSH)
        checksum, length = zlib.crc32(head), len(head)
        for text, _ in blocks:
            checksum, length = zlib.crc32(text, checksum), length + len(text)
        body = b"".join((deflated, *(packed for _, packed in blocks)))
        return GZIP_HEAD + body + END_OF_DEFLATE + struct.pack("<II", checksum, length)

    def _parts(self, host: int, page: int) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        self._make_blocks()
        chance = random.Random(page * 1_000_003 + host)
        links = "\n".join(
            f'<li><a class="link" href="{self._href(host, *target)}">{chance.choice(WORDS)} {target[1]}</a></li>'
            for target in self.targets(host, page)
        )
        title = f"Page {page} of host {host}"
        head = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
            f"<body><h1>{title}</h1><ul>\n{links}\n</ul>\n"
        ).encode()
        count = max(0, self.size - len(head)) // BLOCK_SIZE
        return head, [self._blocks[chance.randrange(BLOCKS)] for _ in range(count)]

    def _href(self, host: int, there: int, page: int) -> str:
        path = f"/{page if page else ''}"
        return path if there == host else f"http://{self.addresses[there]}:{self.port}{path}"

    def _make_blocks(self) -> None:
        for number in range(len(self._blocks), BLOCKS):
            chance = random.Random(number)
            text = ""
            while len(text) < BLOCK_SIZE:
                words = " ".join(chance.choices(WORDS, k=chance.randint(30, 80)))
                text += f'<p class="text">{words}, <em>{chance.randrange(10**9)}</em>.</p>\n'
            data, packer = text.encode(), zlib.compressobj(6, wbits=-15)
            self._blocks.append((data, packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)))


class Shop(asyncio.Protocol):
    """Answers requests for the pages of a site, one connection after the other."""

    def __init__(self, server: SiteServer) -> None:
        self._server = server
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._host = transport.get_extra_info("sockname")[0]
        self._server.open.add(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            path = data[: data.find(b"\r\n")].split(b" ")[1]
            data = data[end + 4 :]
            self._server.log.append((time.monotonic(), self._host, path.decode("latin-1")))
            self._answer(path)
        self._rest = data

    def _answer(self, path: bytes) -> None:
        server = self._server
        answer = server.answer(self._host, path.decode("latin-1"))
        wait = server.latency(self._host)
        if wait:
            asyncio.get_running_loop().call_later(wait, self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)


class SiteServer:
    """Serves a site; ``log`` has each request: when it came, to which host, for what."""

    def __init__(self, site: Site, *, latencies: tuple[float, float] = (0.0, 0.0), robots: bytes | None = None) -> None:
        self.site, self._latencies, self._robots = site, latencies, robots
        self.log: list[tuple[float, str, str]] = []
        self.open: set[asyncio.Transport] = set()
        self._answers: dict[tuple[str, str], bytes] = {}
        self._hosts = {address: number for number, address in enumerate(site.addresses)}
        self._chance = random.Random(7)

    def latency(self, host: str) -> float:
        low, high = self._latencies
        return self._chance.uniform(low, high) if high else 0.0

    def make(self) -> None:
        """All pages at once, so that none is made while somebody waits."""
        for address in self.site.addresses:
            for page in range(self.site.per_host):
                self.answer(address, f"/{page or ''}")

    def answer(self, host: str, path: str) -> bytes:
        known = self._answers.get((host, path))
        if known is None:
            known = self._answers[host, path] = self._made(host, path)
        return known

    def _made(self, host: str, path: str) -> bytes:
        if path == "/robots.txt":
            text = self._robots or b""
            return _http("200 OK" if self._robots is not None else "404 Not Found", "text/plain", text)
        number = path[1:] or "0"
        if not number.isdigit() or int(number) >= self.site.per_host:
            return _http("404 Not Found", "text/plain", b"")
        body = self.site.packed(self._hosts[host], int(number))
        return _http("200 OK", "text/html; charset=utf-8", body, "Content-Encoding: gzip\r\n")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Site]:
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            for address in self.site.addresses:
                server = await loop.create_server(lambda: Shop(self), address, self.site.port, backlog=1_000)
                self.site.port = self.site.port or server.sockets[0].getsockname()[1]
                stack.callback(server.close)
            self._answers.clear()
            try:
                yield self.site
            finally:
                for transport in list(self.open):
                    transport.abort()


def _http(status: str, kind: str, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def serve(server: SiteServer) -> None:
    """Until SIGTERM. The first line on stdout is the port."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with server.serving():
        server.make()
        print(server.site.port, flush=True)
        await ended.wait()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="site", description="Serve a site that is made for crawlers, on loopback.")
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, nargs=2, default=(0.0, 0.0), metavar=("LEAST", "MOST"))
    parser.add_argument("--log", type=Path, help="when each request came, to which host, for what")
    options = parser.parse_args(arguments)
    site = Site(pages=options.pages, hosts=options.hosts, port=options.port)
    server = SiteServer(site, latencies=tuple(options.latency))
    uvloop.run(serve(server))
    if options.log is not None:
        options.log.write_text("".join(f"{at:.6f} {host} {path}\n" for at, host, path in server.log))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
