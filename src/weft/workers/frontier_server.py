"""Serves the frontier to the process of an attempt: over a socket for a crawl, over named pipes for a spider.

A spider's sandbox lets it open no socket; its two pipes speak the protocol of a crawl's socket. Items are stored before
a turn is made, so that a URL is done only once its item is there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import ExitStack, asynccontextmanager
from io import FileIO
from pathlib import Path

import msgspec

from weft.crawler.messages import CrawlerReply, CrawlerRequest, CrawlPolicy, CrawlTurnReply, PermitRequest
from weft.crawler.worker_channel import LARGEST_FRAME, SOCKET, receive_frame, send_frame
from weft.errors import Conflict, FrontierElsewhere, Invalid, LeaseLost, NotAllowed, NotFound, WeftError
from weft.items.model import ItemBatch
from weft.ports import Grant
from weft.runs.model import Lease
from weft.workers.item_delivery import ItemDelivery
from weft.workers.permits import of_code
from weft.workers.protocol import WorkerProtocol

log = logging.getLogger(__name__)

PERMANENT = (Conflict, FrontierElsewhere, Invalid, NotAllowed, NotFound)
"""What asking again does not mend."""

_question = msgspec.json.Decoder(CrawlerRequest).decode
_answer = msgspec.json.Encoder().encode


class FrontierServer:
    """Answers the process of one attempt."""

    def __init__(
        self,
        protocol: WorkerProtocol,
        delivery: ItemDelivery,
        lease: Lease,
        policy: CrawlPolicy,
        hide: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        self._protocol, self._delivery, self._lease, self._policy = protocol, delivery, lease, policy
        self._hide = hide

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one question after the other until the process hangs up."""
        try:
            while True:
                head, lines = await receive_frame(reader)
                await send_frame(writer, _answer(await self.answer(_question(head), lines)))
        except (EOFError, ConnectionError):
            pass
        except msgspec.DecodeError as problem:
            log.warning("a crawling process asked for nonsense", extra={"run_id": self._lease.run_id, "why": problem})
        finally:
            writer.close()

    async def answer(self, question: CrawlerRequest, lines: bytes) -> CrawlerReply:
        policy = self._policy if question.asked is None else None
        try:
            if question.permit is not None:
                return CrawlerReply(grant=await self._permitted(question.permit))
            if (question.first or question.stats is not None) and not await self._collected(question, lines):
                return CrawlerReply(lost=True)
            await self._catch_up(question)
            turned = await self._turned(question)
            return CrawlerReply(turned=turned, policy=policy)
        except LeaseLost:
            return CrawlerReply(lost=True)
        except WeftError as problem:
            return CrawlerReply(problem=str(problem), fatal=isinstance(problem, PERMANENT))

    async def _permitted(self, asked: PermitRequest) -> Grant:
        """A place in the line of all who ask the same. Only crawls bring the delay of addresses with them."""
        lease = self._lease
        asked = msgspec.structs.replace(asked, lead=0.0) if lease.kind == "crawl" else of_code(asked)
        return await self._protocol.permit(self._delivery.worker_id, lease.run_id, lease.attempt, asked)

    async def _collected(self, question: CrawlerRequest, lines: bytes) -> bool:
        lease = self._lease
        harvest = ItemBatch(lease.run_id, lease.attempt, question.first or 1, lines, question.stats)
        (awaited,) = await self._protocol.collect(self._delivery.worker_id, [harvest])
        return awaited >= harvest.first + lines.count(b"\n")

    async def _catch_up(self, question: CrawlerRequest) -> None:
        """Store what a spider has yielded of the pages that it says are done; a crawl sends its items itself."""
        if question.asked is not None and any(report.outcomes for report in question.asked.turn.reports):
            await self._delivery.catch_up(self._lease.run_id, self._lease.attempt)

    async def _turned(self, question: CrawlerRequest) -> CrawlTurnReply | None:
        if question.asked is None:
            return None
        lease = self._lease
        turned = await self._protocol.frontier(self._delivery.worker_id, lease.run_id, lease.attempt, question.asked)
        if turned.proxies is not None and turned.proxies.plan is not None:
            self._hide(turned.proxies.plan.passwords)
        return turned


@asynccontextmanager
async def serving(frontier: FrontierServer, folder: Path) -> AsyncIterator[None]:
    """Have the socket in ``folder`` for as long as the attempt's process runs."""
    listening = _bound(folder)
    server = await asyncio.start_unix_server(frontier.talk, sock=listening)
    try:
        yield
    finally:
        server.close()


def _bound(folder: Path) -> socket.socket:
    """A socket of that name in the folder, however long the folder's own path is: that of a socket must be short."""
    (folder / SOCKET).unlink(missing_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    listening = socket.socket(socket.AF_UNIX)
    try:
        short = Path(f"/proc/self/fd/{opened}")
        listening.bind(str((short if short.exists() else folder) / SOCKET))
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(opened)
    return listening


PAIRS = (("frontier.ask", "frontier.answer"), ("ways.ask", "ways.answer"))
"""Their names in the run's folder: for questions about the frontier, and for those about permits and proxies, which
must not wait for the others."""


@asynccontextmanager
async def piped(frontier: FrontierServer, folder: Path) -> AsyncIterator[None]:
    """Have the pipes in ``folder`` for as long as the attempt's process runs."""
    with ExitStack() as ends:
        lines = [await _streams(*_opened(folder, *pair, ends), ends) for pair in PAIRS]
        talking = {asyncio.create_task(frontier.talk(*line)) for line in lines}
        try:
            yield
        finally:
            for each in talking:
                each.cancel()
            await asyncio.wait(talking)


def _opened(folder: Path, questions: str, answers: str, ends: ExitStack) -> tuple[FileIO, FileIO]:
    """Our ends of both. Each has its other end open here as well, so that nothing is over while the process starts."""
    for name in (questions, answers):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name, 0o600)
    reads = os.open(folder / questions, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    theirs = os.open(folder / answers, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    ends.callback(os.close, theirs)
    writes = os.open(folder / answers, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    return FileIO(reads, "rb"), FileIO(writes, "wb")


async def _streams(reads: FileIO, writes: FileIO, ends: ExitStack) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LARGEST_FRAME)
    protocol = asyncio.StreamReaderProtocol(reader)
    reading, _ = await loop.connect_read_pipe(lambda: protocol, reads)
    ends.callback(reading.close)
    writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, writes)
    ends.callback(writing.close)
    return reader, asyncio.StreamWriter(writing, flow, None, loop)
