"""A site whose pages are known, with what crawlers stumble over: redirects, other spellings, copies, and cycles.

Page n is ``/n`` on host n modulo their number. Every page can be reached from the first. Some links lead through a
redirect, some carry what says who followed them, some lead to a copy that names the page as its canonical form.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Maze:
    """The pages, and how often each was asked for."""

    pages: int
    hosts: int
    first: int = 1
    """The last number of the first host's address."""
    port: int = 0
    fetched: Counter[str] = field(default_factory=Counter)
    """By address, those of pages only."""

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.{self.first + number}" for number in range(self.hosts)]

    def url(self, page: int, folder: str = "") -> str:
        return f"http://{self.addresses[page % self.hosts]}:{self.port}{folder}/{page}"

    def all(self) -> set[str]:
        return {self.url(page) for page in range(self.pages)}

    def html(self, page: int) -> bytes:
        chance = random.Random(page)
        below = [number for number in (2 * page + 1, 2 * page + 2) if number < self.pages]
        links = [self._spelled(number, chance) for number in below]
        links += [self.url(chance.randrange(self.pages)) for _ in range(8)]
        body = "".join(f'<a href="{link}">on</a> ' for link in links)
        words = " ".join(str(chance.random()) for _ in range(60))
        canonical = f'<link rel="canonical" href="{self.url(page)}">'
        return f"<!doctype html><head><title>Page {page}</title>{canonical}</head><p>{words}</p>{body}".encode()

    def _spelled(self, page: int, chance: random.Random) -> str:
        plain = self.url(page)
        return chance.choice(
            [plain, plain, f"{plain}?utm_source=mail", f"{plain}#part", self.url(page, "/r"), f"{plain}?"]
        )

    def answer(self, host: str, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        number = name.partition("?")[0]
        if not number.isdigit() or int(number) >= self.pages:
            return _http("404 Not Found", b"")
        if folder == "/r":
            return _http("302 Found", b"", f"Location: {self.url(int(number))}\r\n")
        self.fetched[f"http://{host}:{self.port}{path}"] += 1
        return _http("200 OK", self.html(int(number)))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Maze]:
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            for address in self.addresses:
                server = await loop.create_server(lambda: _Answering(self), address, self.port, backlog=1_000)
                self.port = self.port or server.sockets[0].getsockname()[1]
                stack.callback(server.close)
            yield self


class _Answering(asyncio.Protocol):
    def __init__(self, maze: Maze) -> None:
        self._maze, self._rest = maze, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._host = transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            path = data[: data.find(b"\r\n")].split(b" ")[1].decode("latin-1")
            data = data[end + 4 :]
            self._transport.write(self._maze.answer(self._host, path))
        self._rest = data


def _http(status: str, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
