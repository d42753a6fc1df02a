"""Rings through Redis Streams: each hint reaches one waiter of the whole cluster.

A queue's stream is read by one consumer group, without acknowledgements: a hint that is lost with its reader costs a
poll. All readers are one consumer, so that processes that came and went leave nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from weft.adapters.brokers import wakeups
from weft.adapters.brokers.resp import Address, Command, Connection, ReplyError
from weft.adapters.brokers.server import PATIENCE_SECONDS, ServerBroker
from weft.adapters.brokers.wakeups import Waiters

PREFIX = "weft:doorbell:"
GROUP = "weft"
CONSUMER = "workers"
MOST_KEPT = 500
"""Hints in a stream, roughly; those beyond it would only wake workers for runs that are long done."""

FORGOTTEN_AFTER_SECONDS = 24 * 3600
BLOCK_SECONDS = 5
"""How long one read blocks; its end also tells that the server is still there."""

MOST_PER_READ = 100
NUDGE_SECONDS = 0.02


def redis_broker(url: str) -> ServerBroker:
    return ServerBroker("redis", RedisTransport(url), reaches_all=False)


class RedisTransport:
    """A stream for each queue; one connection that rings, one that listens."""

    def __init__(self, url: str) -> None:
        self._address = Address.parse(url)
        self.waiters = Waiters()
        self._line: Connection | None = None

    async def send(self, queues: Mapping[str, int]) -> None:
        line = await self._open_line()
        await line.pipeline([command for queue, count in queues.items() for command in wakeup_commands(queue, count)])

    async def _open_line(self) -> Connection:
        if self._line is None or not self._line.is_open:
            self._line = await Connection.open(self._address)
        return self._line

    def hang_up(self) -> None:
        if self._line is not None:
            self._line.abort()
            self._line = None

    async def say_goodbye(self) -> None:
        if self._line is not None:
            await self._line.close()

    async def listen(self, opened: Callable[[], None]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            connection = await Connection.open(self._address)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                client_id = await connection.call("CLIENT", "ID")
            await self._join(connection, self.waiters.queues)
            opened()
            while True:
                await self._read(connection, client_id)
        finally:
            await connection.close()

    async def _read(self, connection: Connection, client_id: int) -> None:
        """Wait until someone waits, then for hints, and hand them out."""
        self.waiters.changed.clear()
        queues = self.waiters.queues
        if not queues:
            await self.waiters.changed.wait()
            return
        reading = connection.send([read_command(queues, len(self.waiters))])[0]
        await self._until_read(reading, queues, client_id)
        try:
            for stream, entries in reading.result() or ():
                await self._take(stream.decode().removeprefix(PREFIX), len(entries))
        except ReplyError as refusal:
            if refusal.code not in ("NOGROUP", "UNBLOCKED"):
                raise
            await self._join(connection, queues)

    async def _take(self, queue: str, count: int) -> None:
        """Wake as many, and give back what came too late for those who waited here: others may wait elsewhere."""
        unwanted = count - self.waiters.offer(queue, count)
        if unwanted:
            async with self._patience():
                await self.send({queue: unwanted})

    async def _join(self, connection: Connection, queues: Collection[str]) -> None:
        """Make the groups that are missing. What was rung before them is unknown, so everyone looks once."""
        created = False
        for queue in queues:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await connection.call("XGROUP", "CREATE", PREFIX + queue, GROUP, "$", "MKSTREAM")
                created = True
            except ReplyError as refusal:
                if refusal.code != "BUSYGROUP":
                    raise
        if created:
            self.waiters.wake_all()

    async def _until_read(self, reading: asyncio.Future[Any], queues: Collection[str], client_id: int) -> None:
        """Return when the read has its reply; end it early where other queues are waited for than it asks for."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BLOCK_SECONDS + PATIENCE_SECONDS
        while not reading.done():
            if self.waiters.queues == queues:
                await self._until_done_or_changed(reading, deadline - loop.time())
            else:
                await self._unblock(client_id)
                await asyncio.wait({reading}, timeout=NUDGE_SECONDS)
            if loop.time() > deadline:
                raise TimeoutError("Redis does not answer")

    async def _until_done_or_changed(self, reading: asyncio.Future[Any], timeout: float) -> None:
        changed = asyncio.ensure_future(self.waiters.changed.wait())
        try:
            await asyncio.wait({reading, changed}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        self.waiters.changed.clear()

    async def _unblock(self, client_id: int) -> None:
        """End the blocking read from the other connection. It may not have begun yet, so this is repeated."""
        async with self._patience():
            line = await self._open_line()
            await line.call("CLIENT", "UNBLOCK", client_id)

    @asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        """Wait on the line for a while; one that does not answer is cut, or it would stay open and be asked again."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                yield
        except BaseException:
            self.hang_up()
            raise


def wakeup_commands(queue: str, count: int) -> list[Command]:
    stream = PREFIX + queue
    add: Command = ("XADD", stream, "MAXLEN", "~", MOST_KEPT, "*", "hint", wakeups.encode({queue: 1}))
    return [*[add] * count, ("EXPIRE", stream, FORGOTTEN_AFTER_SECONDS)]


def read_command(queues: Collection[str], waiting: int) -> Command:
    """As many hints as there are waiters, so that the rest is left for other processes."""
    most = max(1, min(MOST_PER_READ, waiting))
    streams = [PREFIX + queue for queue in queues]
    head: Command = ("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", most, "BLOCK", BLOCK_SECONDS * 1000, "NOACK")
    return (*head, "STREAMS", *streams, *[">"] * len(streams))
