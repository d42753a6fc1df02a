"""Runs of one spider that share a frontier: a real one, behind the line that a worker has for its runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.agent.starting import AGENT, Run, write_order
from weft import clock
from weft.crawler.messages import CrawlerReply, CrawlerRequest, CrawlTurnReply
from weft.crawler.worker_channel import receive_frame, send_frame
from weft.crawls.sql_frontier import SqlFrontier
from weft.db.database import Database
from weft.ports import Counts, Limits
from weft.workers.frontier_server import piped

CRAWL = 1
QUICK = {"DOWNLOAD_DELAY": 0, "RETRY_TIMES": 2}


class Holder:
    """Answers one run."""

    def __init__(self, shared: Shared, name: str) -> None:
        self._shared, self._name = shared, name

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await receive_frame(reader)
            answer = await self._shared.answer(self._name, msgspec.json.decode(head, type=CrawlerRequest))
            await send_frame(writer, msgspec.json.encode(answer))


class Shared:
    """A frontier, and the runs that share it."""

    def __init__(self, db: Database, code: Path, home: Path) -> None:
        self.frontier = SqlFrontier(db, clock.now)
        self._code, self._home = code, home
        self._closing = AsyncExitStack()
        self.hungry: set[str] = set()
        """Those who hold no host and were given none when they last asked."""
        self.starting: set[str] = set()
        """Runs that must all have asked before any of them is answered: none has a head start."""
        self._all_have_asked = asyncio.Event()

    async def counts(self) -> Counts:
        return await self.frontier.counts(CRAWL)

    async def all_are_given(self) -> bool:
        """Whether somebody holds every page that is not done."""
        return not (await self.counts()).queued

    async def begin(self, name: str, spider: str = "walker", **order: Any) -> tuple[Run, asyncio.subprocess.Process]:
        """Start a run of the spider in a process of its own."""
        order["settings"] = {**QUICK, **order.get("settings", {})}
        folder = write_order(self._home / name, self._code, spider, **{"frontier": True, **order})
        desk: Any = Holder(self, name)
        await self._closing.enter_async_context(piped(desk, folder))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(AGENT), "run", str(folder)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        return Run(folder, process.pid), process

    async def end(self, run: Run, process: asyncio.subprocess.Process) -> Run:
        run.output, _ = await process.communicate()
        assert process.returncode is not None
        run.status = process.returncode << 8
        return run

    async def run(self, name: str, spider: str = "walker", **order: Any) -> Run:
        return await self.end(*await self.begin(name, spider, **order))

    async def answer(self, holder: str, question: CrawlerRequest) -> CrawlerReply:
        if question.asked is None:
            return CrawlerReply()
        self.starting.discard(holder)
        if not self.starting:
            self._all_have_asked.set()
        await self._all_have_asked.wait()
        turned = await self.frontier.turn(CRAWL, holder, question.asked.turn)
        is_hungry = question.asked.hungry and not turned.leases and turned.next_at is not None
        self.hungry = self.hungry | {holder} if is_hungry else self.hungry - {holder}
        return CrawlerReply(turned=CrawlTurnReply(CRAWL, turned, others_hungry=bool(self.hungry - {holder})))

    async def close(self) -> None:
        await self._closing.aclose()


@asynccontextmanager
async def shared(db: Database, code: Path, home: Path) -> AsyncIterator[Shared]:
    sharing = Shared(db, code, home)
    await sharing.frontier.open(CRAWL, Limits())
    try:
        yield sharing
    finally:
        await sharing.close()
