"""Where a process that crawls asks its worker for work and leaves what it has found: a socket in its folder.

Items are stored before a turn is made, so that an address is done only once its item is there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from weft.crawl_ports import Grant, Limiter, Rate
from weft.crawls.line import SOCKET, receive, send
from weft.crawls.model import Answer, CrawlTurned, PermitAsked, Policy, Question
from weft.errors import Invalid, LeaseLost, NotAllowed, NotFound, WeftError
from weft.items.model import Harvest
from weft.runs.model import Lease
from weft.workers.delivery import Delivery
from weft.workers.protocol import WorkerProtocol

log = logging.getLogger(__name__)

PERMANENT = (Invalid, NotAllowed, NotFound)
"""What asking again does not mend."""

SAY_AGAIN_SECONDS = 600.0
"""How often a limiter is told the rate of an address: it may forget one that it has not heard for an hour."""
MOST_SAID = 10_000

_question = msgspec.json.Decoder(Question).decode
_answer = msgspec.json.Encoder().encode


class FrontierDesk:
    """Answers the process of one attempt."""

    def __init__(
        self,
        protocol: WorkerProtocol,
        delivery: Delivery,
        lease: Lease,
        policy: Policy,
        limiter: Limiter | None = None,
        hide: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        self._protocol, self._delivery, self._lease, self._policy = protocol, delivery, lease, policy
        self._limiter, self._hide = limiter, hide
        self._said: dict[str, float] = {}
        """Addresses whose rate was said, and when, by ``time.monotonic``."""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one question after the other until the process hangs up."""
        try:
            while True:
                head, lines = await receive(reader)
                await send(writer, _answer(await self.answer(_question(head), lines)))
        except (EOFError, ConnectionError):
            pass
        except msgspec.DecodeError as problem:
            log.warning("a crawling process asked for nonsense", extra={"run_id": self._lease.run_id, "why": problem})
        finally:
            writer.close()

    async def answer(self, question: Question, lines: bytes) -> Answer:
        policy = self._policy if question.asked is None else None
        try:
            if question.permit is not None:
                return Answer(grant=await self._permitted(question.permit))
            if (question.first or question.stats is not None) and not await self._collected(question, lines):
                return Answer(lost=True)
            await self._catch_up(question)
            turned = await self._turned(question)
            return Answer(turned=turned, policy=policy)
        except LeaseLost:
            return Answer(lost=True)
        except WeftError as problem:
            return Answer(problem=str(problem), fatal=isinstance(problem, PERMANENT))

    async def _permitted(self, asked: PermitAsked) -> Grant:
        """A place in the line of all who ask the same; where there is no limiter, nobody else does."""
        if self._limiter is None:
            return Grant(True)
        if asked.penalty:
            await self._limiter.penalise(asked.keys[0], asked.penalty)
            return Grant(True)
        await self._say_rates(self._limiter, asked)
        return await self._limiter.reserve(asked.keys, longest_wait=asked.longest_wait)

    async def _say_rates(self, limiter: Limiter, asked: PermitAsked) -> None:
        """Crawls bring the delay of addresses with them; that of hosts is not for them to say."""
        at = time.monotonic()
        keys = (key for key in asked.keys if key.startswith("address:"))
        new = [key for key in keys if key not in self._said or at - self._said[key] >= SAY_AGAIN_SECONDS]
        if asked.rate and new and self._lease.kind == "crawl":
            await limiter.set({key: Rate(asked.rate) for key in new})
            if len(self._said) >= MOST_SAID:
                self._said.clear()
            self._said |= dict.fromkeys(new, at)

    async def _collected(self, question: Question, lines: bytes) -> bool:
        lease = self._lease
        harvest = Harvest(lease.run_id, lease.attempt, question.first or 1, lines, question.stats)
        (awaited,) = await self._protocol.collect(self._delivery.worker_id, [harvest])
        return awaited >= harvest.first + lines.count(b"\n")

    async def _catch_up(self, question: Question) -> None:
        """Store what a spider has yielded of the pages that it says are done; a crawl sends its items itself."""
        if question.asked is not None and any(report.outcomes for report in question.asked.turn.reports):
            await self._delivery.catch_up(self._lease.run_id, self._lease.attempt)

    async def _turned(self, question: Question) -> CrawlTurned | None:
        if question.asked is None:
            return None
        lease = self._lease
        turned = await self._protocol.frontier(self._delivery.worker_id, lease.run_id, lease.attempt, question.asked)
        if turned.proxies is not None and turned.proxies.plan is not None:
            self._hide(turned.proxies.plan.passwords)
        return turned


@asynccontextmanager
async def serving(desk: FrontierDesk, folder: Path) -> AsyncIterator[None]:
    """Have the socket in ``folder`` for as long as the attempt's process runs."""
    listening = _bound(folder)
    server = await asyncio.start_unix_server(desk.talk, sock=listening)
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
