"""A small site on several loopback hosts, which counts what it is asked for."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

HOSTS = 4
CHILDREN = 3


@dataclass
class Site:
    """Page n links to its children, such as 3n+1 to 3n+3, back to itself and to the first; hosts take turns."""

    pages: int
    port: int = 0
    children: int = CHILDREN
    asked: Counter[int] = field(default_factory=Counter)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is not set, answers wait."""
    failing: dict[int, int] = field(default_factory=dict)
    """How often a page answers 503 before it answers."""
    retry_after: str = ""
    """What such an answer says of when to come back."""
    refused_at: list[tuple[str, float]] = field(default_factory=list)
    asked_at: list[tuple[str, float]] = field(default_factory=list)
    """When each host was asked, and when it refused."""
    moved: set[int] = field(default_factory=set)
    """Pages that are found at /moved/ alone."""

    def url(self, n: int, folder: str = "page") -> str:
        return f"http://127.0.0.{1 + n % HOSTS}:{self.port}/{folder}/{n}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                folder, n = head.split(b" ", 2)[1].decode().rsplit("/", 1)
                writer.write(await self._page(folder, int(n)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _page(self, folder: str, n: int) -> bytes:
        if n in self.moved and folder == "/page":
            return _response("302 Found", b"", f"Location: /moved/{n}\r\n")
        self.asked[n] += 1
        host = f"127.0.0.{1 + n % HOSTS}"
        self.asked_at.append((host, time.monotonic()))
        await self.open.wait()
        if self.failing.get(n, 0) > 0:
            self.failing[n] -= 1
            self.refused_at.append((host, time.monotonic()))
            return _response("503 Busy", b"busy", f"Retry-After: {self.retry_after}\r\n" if self.retry_after else "")
        linked = [each for each in range(self.children * n + 1, self.children * (n + 1) + 1) if each < self.pages]
        links = "".join(f'<a href="{self.url(each)}">{each}</a>' for each in (*linked, n, 0))
        return _response("200 OK", f"<title>{n}</title>{links}".encode())


def _response(status: str, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@asynccontextmanager
async def serving(pages: int) -> AsyncIterator[Site]:
    site = Site(pages)
    site.open.set()
    first = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.port = first.sockets[0].getsockname()[1]
    others = [await asyncio.start_server(site.answer, f"127.0.0.{1 + n}", site.port) for n in range(1, HOSTS)]
    try:
        yield site
    finally:
        site.open.set()
        for server in (first, *others):
            server.close()
