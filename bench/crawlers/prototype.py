"""The least that a crawl can cost: one process, by hand, nothing kept but the addresses that it knows.

``python prototype.py SEED…`` crawls what links to the seeds' hosts and prints one JSON object: pages, seconds, cpu.
No robots.txt, no politeness, no frontier that outlives it, no items: a limit, not a crawler.
"""

import asyncio
import json
import resource
import sys
import time
from collections import deque

import httptools
import url
import uvloop
import xxhash
from isal import isal_zlib
from selectolax.lexbor import LexborHTMLParser


class Exchange(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._is_packed = False
        self._address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.ask()

    def ask(self) -> None:
        if not self._host.waiting:
            self._host.idle.append(self)
            return
        self._address = self._host.waiting.popleft()
        path = "/" + self._address.split("/", 3)[3]
        self._pieces.clear()
        self._transport.write(  # type: ignore[attr-defined]
            f"GET {path} HTTP/1.1\r\nHost: {self._host.name}\r\nAccept-Encoding: gzip\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-encoding":
            self._is_packed = value == b"gzip"

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._pieces)
        if self._is_packed:
            body = isal_zlib.decompress(body, wbits=31)
        if self._parser.get_status_code() == 200:
            self._host.site.take(self._address, body)
        else:
            self._host.site.left -= 1
        self._parser = httptools.HttpResponseParser(self)
        self._host.site.check()
        self.ask()


class Host:
    """One host, and what waits to be asked of it."""

    def __init__(self, site: "Site", name: str) -> None:
        self.site, self.name = site, name
        self.waiting: deque[str] = deque()
        self.idle: list[Exchange] = []
        self.is_open = False

    def add(self, address: str) -> None:
        self.waiting.append(address)
        if self.idle:
            self.idle.pop().ask()
        elif not self.is_open:
            self.is_open = True
            name, _, port = self.name.partition(":")
            loop = asyncio.get_running_loop()
            self.site.tasks.append(
                loop.create_task(loop.create_connection(lambda: Exchange(self), name, int(port or 80)))
            )


class Site:
    """All that is known."""

    def __init__(self, seeds: list[str]) -> None:
        self.known: set[int] = set()
        self.hosts = {each.split("/", 3)[2]: Host(self, each.split("/", 3)[2]) for each in seeds}
        self.pages = self.titles = self.left = 0
        self.tasks: list[asyncio.Task[object]] = []
        self.over = asyncio.Event()
        for seed in seeds:
            self.find(seed)

    def find(self, address: str) -> None:
        key = xxhash.xxh3_64_intdigest(address.encode())
        if key in self.known:
            return
        self.known.add(key)
        host = self.hosts.get(address.split("/", 3)[2])
        if host is not None:
            self.left += 1
            host.add(address)

    def take(self, address: str, body: bytes) -> None:
        tree, base = LexborHTMLParser(body), url.URL.parse(address)
        title = tree.css_first("title")
        self.titles += title is not None and bool(title.text())
        for link in tree.css("a[href]"):
            href = link.attributes.get("href")
            if href:
                self.find(str(base.join(href)).partition("#")[0])
        self.pages += 1
        self.left -= 1

    def check(self) -> None:
        if not self.left:
            self.over.set()


async def crawl(seeds: list[str]) -> None:
    began = time.monotonic()
    site = Site(seeds)
    await site.over.wait()
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"pages": site.pages, "seconds": time.monotonic() - began, "cpu": used.ru_utime + used.ru_stime}
    print(json.dumps(told | {"titles": site.titles, "memory_mb": used.ru_maxrss / 1024}))


if __name__ == "__main__":
    uvloop.run(crawl(sys.argv[1:]))
