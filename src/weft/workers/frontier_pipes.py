"""The line to the frontier for a spider, whose walls let it open no socket: two named pipes in its folder.

Over them goes what goes over the socket of a crawl (``crawls/line.py``). ``agent/frontier.py`` has the other ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from io import FileIO
from pathlib import Path

from weft.crawls.line import LARGEST
from weft.workers.frontier_desk import FrontierDesk

PAIRS = (("frontier.ask", "frontier.answer"), ("ways.ask", "ways.answer"))
"""Their names in the run's folder: for questions about the frontier, and for those about permits and proxies, which
must not wait for the others."""


@asynccontextmanager
async def piped(desk: FrontierDesk, folder: Path) -> AsyncIterator[None]:
    """Have the pipes in ``folder`` for as long as the attempt's process runs."""
    with ExitStack() as ends:
        lines = [await _streams(*_opened(folder, *pair, ends), ends) for pair in PAIRS]
        talking = {asyncio.create_task(desk.talk(*line)) for line in lines}
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
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LARGEST)
    protocol = asyncio.StreamReaderProtocol(reader)
    reading, _ = await loop.connect_read_pipe(lambda: protocol, reads)
    ends.callback(reading.close)
    writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, writes)
    ends.callback(writing.close)
    return reader, asyncio.StreamWriter(writing, flow, None, loop)
