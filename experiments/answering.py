"""A web server whose answers are made by a function, and that notes what it was asked, when, and how often at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came in."""

    at: float
    """By ``time.monotonic``."""
    host: str
    """The address that was connected to."""
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Said:
    """An answer; ``wait`` seconds pass before it is given, and ``endless`` bytes follow it as long as anybody reads."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    endless: bytes = b""


Answer = Callable[[Asked], Said]


def html(*links: str, title: str = "a page", text: str = "") -> Said:
    """A page with these links."""
    anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    body = f"<!doctype html><title>{title}</title><body><p>{text}</p>{anchors}</body>"
    return Said(body=body.encode(), headers={"Content-Type": "text/html; charset=utf-8"})


class Answering:
    """Serves on addresses of loopback, all on one port."""

    def __init__(self, answer: Answer, addresses: Iterable[str] = ("127.0.0.1",)) -> None:
        self._answer, self.addresses = answer, list(addresses)
        self.port = 0
        self.log: list[Asked] = []
        self._under_way: dict[str, int] = {}
        self.most_at_once: dict[str, int] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    def url(self, path: str = "/", address: str = "") -> str:
        return f"http://{address or self.addresses[0]}:{self.port}{path}"

    def paths(self, address: str = "") -> list[str]:
        """What was asked for, in order."""
        return [asked.path for asked in self.log if not address or asked.host == address]

    def gaps(self, address: str) -> list[float]:
        """Seconds from each request to the next."""
        times = [asked.at for asked in self.log if asked.host == address]
        return [after - before for before, after in pairwise(times)]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Answering]:
        async with AsyncExitStack() as stack:
            for address in self.addresses:
                server = await asyncio.start_server(self._serve, address, self.port)
                self.port = self.port or server.sockets[0].getsockname()[1]
                stack.callback(server.close)
            try:
                yield self
            finally:
                for writer in list(self._writers):
                    writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await self._converse(head, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _converse(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        at = time.monotonic()
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines if each)}
        host = writer.get_extra_info("sockname")[0]
        asked = Asked(at, host, first.split(" ")[1], headers)
        self.log.append(asked)
        self._under_way[host] = self._under_way.get(host, 0) + 1
        self.most_at_once[host] = max(self.most_at_once.get(host, 0), self._under_way[host])
        try:
            await self._say(self._answer(asked), writer)
        finally:
            self._under_way[host] -= 1

    async def _say(self, said: Said, writer: asyncio.StreamWriter) -> None:
        if said.wait:
            await asyncio.sleep(said.wait)
        length = {} if said.endless else {"Content-Length": str(len(said.body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**said.headers, **length}.items())
        writer.write(f"HTTP/1.1 {said.status} -\r\n{lines}\r\n".encode("latin-1") + said.body)
        await writer.drain()
        while said.endless:
            writer.write(said.endless)
            await writer.drain()
