"""A worker for processes that crawl: a frontier in a database behind the line, and the items in a list.

The processes are real ones; what is left out is the control plane, of which they know nothing anyway.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from weft.adapters.limiters.memory import MemoryLimiter
from weft.clock import now
from weft.crawl_spec import CrawlSpec
from weft.crawler import worker_channel
from weft.crawler.crawler import Crawler, CrawlerExit
from weft.crawler.messages import CrawlerReply, CrawlerRequest, CrawlPolicy, CrawlTurnReply, PermitRequest, Skip
from weft.crawler.worker_channel import WorkerChannel
from weft.crawls.project_scope import turn_of_project, turned_for
from weft.crawls.sql_frontier import SqlFrontier
from weft.db.database import open_database
from weft.fetching.urls import canonical, host_of, key_of
from weft.ports import Found, Frontier, Limiter, Limits, Turn

ROOT = Path(__file__).parent.parent

POLICY = CrawlPolicy(contact="crawl@weft.example", allowed_networks=("127.0.0.0/8",))
CRAWL = 1


@dataclass(slots=True)
class Clerk:
    """Answers one process, as its worker would."""

    frontier: Frontier
    crawl: int
    project: str
    items: list[dict[str, Any]] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    turns: int = 0
    feed: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    largest: int = 0
    """Bytes of items that came with one question."""
    problem: str = ""
    """What every question is answered with, while there is one."""
    stop: str = ""
    limiter: Limiter = field(default_factory=MemoryLimiter)
    permits: list[PermitRequest] = field(default_factory=list)
    _talks: int = 0
    _counts: dict[str, int] = field(default_factory=dict)
    """Items of each process."""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._talks += 1
        holder = f"{self._talks}:1"
        try:
            while True:
                head, lines = await worker_channel.receive_frame(reader)
                answer = await self._answer(msgspec.json.decode(head, type=CrawlerRequest), lines, holder)
                await worker_channel.send_frame(writer, msgspec.json.encode(answer))
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, question: CrawlerRequest, lines: bytes, holder: str) -> CrawlerReply:
        if self.problem:
            return CrawlerReply(problem=self.problem)
        if lines:
            before = self._counts.get(holder, 0)
            assert question.first == before + 1, f"items from {question.first} on after {before}"
            self._counts[holder] = before + lines.count(b"\n")
            self.largest = max(self.largest, len(lines))
        self.items += [msgspec.json.decode(each)["item"] for each in lines.splitlines()]
        self.stats = question.stats or self.stats
        if question.permit is not None:
            self.permits.append(question.permit)
            return CrawlerReply(
                grant=await self.limiter.reserve(question.permit.keys, 1.0, question.permit.longest_wait)
            )
        if question.asked is None:
            return CrawlerReply(policy=POLICY)
        self.turns += 1
        self.skips += question.asked.skips
        self.feed += question.asked.feed
        turn = question.asked.turn
        turned = await self.frontier.turn(self.crawl, holder, turn_of_project(turn, self.project))
        turned = turned_for(self.project, turned, now())
        idle = not turned.leases and turned.next_at is None and turn.hosts > 0
        over = idle and all(report.release for report in turn.reports)
        return CrawlerReply(turned=CrawlTurnReply(self.crawl, turned, self.stop or ("done" if over else "")))

    def skipped(self) -> dict[str, int]:
        """How many were left out, by reason."""
        sums: dict[str, int] = {}
        for each in self.skips:
            sums[each.reason] = sums.get(each.reason, 0) + each.count
        return sums


@asynccontextmanager
async def clerk_in(folder: Path, database_url: str, spec: CrawlSpec) -> AsyncIterator[Clerk]:
    """A worker that listens in ``folder``, with the seeds of ``spec`` in its frontier."""
    db = open_database(database_url)
    frontier = SqlFrontier(db, now)
    try:
        async with clerk_of(frontier, folder, spec, crawl=CRAWL, project=f"project-{CRAWL}") as clerk:
            yield clerk
    finally:
        await frontier.close()
        db.close()


@asynccontextmanager
async def clerk_of(
    frontier: Frontier, folder: Path, spec: CrawlSpec, *, crawl: int, project: str
) -> AsyncIterator[Clerk]:
    """The same with a frontier that is there already, for a crawl of any project."""
    await frontier.open(crawl, Limits(pages=spec.budget.pages, pages_per_host=spec.budget.pages_per_host))
    seeds = [url for each in spec.urls if (url := canonical(each)) is not None]
    await frontier.turn(crawl, "seeds", Turn(found=[Found(key_of(url), url, host_of(url)) for url in seeds]))
    clerk = Clerk(frontier, crawl, project)
    server = await asyncio.start_unix_server(clerk.talk, str(_short(folder) / worker_channel.SOCKET))
    try:
        yield clerk
    finally:
        server.close()


async def crawl(folder: Path, spec: CrawlSpec) -> CrawlerExit:
    """One share of the crawl, in this process."""
    talk = WorkerChannel(_short(folder) / worker_channel.SOCKET)
    await talk.open()
    try:
        return await Crawler(spec, POLICY, talk, folder).run()
    finally:
        await talk.close()


@asynccontextmanager
async def crawler(folder: Path, spec: CrawlSpec, patch: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that crawls in ``folder``, with a protection switched off where a patch is named."""
    order = {"spec": msgspec.to_builtins(spec), "run_id": 1, "attempt": 1, "project": "default", "task": "crawl"}
    (folder / "order.json").write_bytes(msgspec.json.encode(order))
    module = ["experiments.red", patch, "weft.crawler"] if patch else ["weft.crawler"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *module), cwd=folder, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _short(folder: Path) -> Path:
    """A path of a socket must be short, and those of pytest are not."""
    return Path(os.path.relpath(folder))
