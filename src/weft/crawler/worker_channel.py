"""The channel between a process that crawls and its worker: a Unix socket in the run's folder.

A frame is two lengths (JSON, then bytes that follow it) of four bytes each, big end first, then both. The process asks,
the worker answers; a request that got no answer is sent again.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from weft.crawler.messages import CrawlerReply, CrawlerRequest, CrawlTurn
from weft.ports import Found, Turn

SOCKET = "frontier.sock"
"""Its name in the run's folder. A process connects by that name alone, from within the folder: paths of sockets must be
short."""

FRAME_HEADER = struct.Struct(">II")
LARGEST_FRAME = 64 << 20
"""Bytes of either part; who sends more is not listened to."""


async def receive_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One frame. Raises ``EOFError`` where the other side has hung up."""
    head, tail = FRAME_HEADER.unpack(await reader.readexactly(FRAME_HEADER.size))
    if head > LARGEST_FRAME or tail > LARGEST_FRAME:
        raise EOFError(f"a frame of {head} and {tail} bytes")
    return await reader.readexactly(head), await reader.readexactly(tail) if tail else b""


async def send_frame(writer: asyncio.StreamWriter, head: bytes, tail: bytes = b"") -> None:
    writer.write(FRAME_HEADER.pack(len(head), len(tail)) + head + tail)
    await writer.drain()


FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 5.0

_answer = msgspec.json.Decoder(CrawlerReply).decode
_encode = msgspec.json.Encoder().encode


class WorkerGone(Exception):
    """The worker is not there any more, so that nobody wants what this process does."""


class TurnRefused(Exception):
    """The control plane says no, and would say so again."""


class WorkerChannel:
    """One question at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.problem = ""
        """Why the last question has no answer yet."""

    async def open(self) -> None:
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(str(self.path), limit=1 << 20)
        except OSError as problem:
            raise WorkerGone(f"the worker cannot be reached: {problem}") from problem

    async def ask(self, question: CrawlerRequest, items: bytes = b"") -> CrawlerReply:
        """What the worker answers, however long it takes. Raises ``WorkerGone`` and ``TurnRefused``."""
        head, wait = _encode(question), FIRST_WAIT_SECONDS
        while True:
            answer = await self._once(head, items)
            self.problem = answer.problem
            if not answer.problem:
                return answer
            if answer.fatal:
                raise TurnRefused(answer.problem)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    async def _once(self, head: bytes, items: bytes) -> CrawlerReply:
        assert self._reader is not None
        assert self._writer is not None
        try:
            await send_frame(self._writer, head, items)
            answer, _ = await receive_frame(self._reader)
        except (EOFError, OSError) as problem:
            raise WorkerGone(f"the worker hung up: {problem}") from problem
        return _answer(answer)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class SideChannel:
    """Opened when the first question is asked. Any number may ask; each waits for those before it."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path(SOCKET)
        self._channel: WorkerChannel | None = None
        self._asking = asyncio.Lock()

    async def ask(self, question: CrawlerRequest) -> CrawlerReply:
        async with self._asking:
            if self._channel is None:
                channel = WorkerChannel(self._path)
                await channel.open()
                self._channel = channel
            return await self._channel.ask(question)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()


T = TypeVar("T")

OVERHEAD = 100
"""Bytes of an address besides its texts."""


def split_request(question: CrawlerRequest, items: bytes, most: int) -> Iterator[tuple[CrawlerRequest, bytes]]:
    """The question with its items, of at most so many bytes each; the last piece has what became of the pages.

    It keeps a part of what is fed to another crawl as well, because where that is not taken neither is the rest.
    """
    asked = question.asked
    if asked is not None:
        *found, last_found = _cut(asked.turn.found, _weight_of_found, most)
        *feed, last_feed = _cut(asked.feed, _weight, most)
        for some in found:
            yield CrawlerRequest(CrawlTurn(Turn(found=some), crawl=asked.crawl)), b""
        for urls in feed:
            yield CrawlerRequest(CrawlTurn(feed=urls, crawl=asked.crawl)), b""
        if found or feed:
            rest = replace(asked, turn=replace(asked.turn, found=last_found), feed=last_feed)
            question = replace(question, asked=rest)
    while len(items) > most:
        cut = items.rfind(b"\n", 0, most) + 1 or items.find(b"\n") + 1
        yield CrawlerRequest(first=question.first), items[:cut]
        question = replace(question, first=question.first + items.count(b"\n", 0, cut))
        items = items[cut:]
    yield question, items


def _cut(values: list[T], weight: Callable[[T], int], most: int) -> list[list[T]]:
    """In order, in lists that are not too heavy; there is always one."""
    pieces: list[list[T]] = [[]]
    size = 0
    for value in values:
        weighs = weight(value)
        if pieces[-1] and size + weighs > most:
            pieces.append([])
            size = 0
        pieces[-1].append(value)
        size += weighs
    return pieces


def _weight(url: str) -> int:
    return len(url) + OVERHEAD


def _weight_of_found(found: Found) -> int:
    return len(found.url) + len(found.host) + len(found.data) + OVERHEAD
