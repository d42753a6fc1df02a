"""Rings through PostgreSQL's LISTEN and NOTIFY: every process hears every ring.

Needs a connection of its own to the server for each process that waits: a pooler that shares connections between
transactions does not pass notifications on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from traceback import clear_frames
from typing import LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from weft.adapters.brokers import wakeups
from weft.adapters.brokers.retries import fault_of
from weft.adapters.brokers.server import PATIENCE_SECONDS, ServerBroker
from weft.adapters.brokers.wakeups import Waiters
from weft.errors import Invalid, Misconfigured

log = logging.getLogger(__name__)

CHANNEL = "weft_doorbell"
RING = "SELECT pg_notify(%s, hint) FROM unnest(%s::text[]) AS hint"
DEFAULTS = {
    "application_name": "weft doorbell",
    "connect_timeout": "2",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
"""Where the address says nothing else. The keepalives find a server that is gone while nothing is rung."""

PROBE_SECONDS = 10.0
"""How often a listener finds out whether the server still answers: one that hears nothing cannot know."""

Line = psycopg.AsyncConnection[tuple[object, ...]]


def postgres_broker(url: str) -> ServerBroker:
    return ServerBroker("postgresql", PostgresTransport(url), reaches_all=True)


class PostgresTransport:
    """One channel for all queues; one connection that rings, one that listens."""

    def __init__(self, url: str) -> None:
        self._address = parse_address(url)
        self.waiters = Waiters()
        self._line: Line | None = None
        self._busy: Line | None = None
        """The line that somebody waits on, who closes it."""

    async def _open(self) -> Line:
        # Nothing is prepared on the server, so that a pooler may stand between for those who only ring.
        try:
            return await psycopg.AsyncConnection.connect(self._address, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            clear_frames(error.__traceback__)  # they keep the socket until garbage is collected
            raise

    async def send(self, queues: Mapping[str, int]) -> None:
        line = self._busy = self._line = self._line or await self._open()
        try:
            await line.execute(RING, [CHANNEL, [part.decode() for part in wakeups.encode_parts(queues)]])
        except BaseException:
            await line.close()
            raise
        finally:
            if self._busy is line:
                self._busy = None
        if self._line is not line:  # it was hung up after the answer had come
            await line.close()

    def hang_up(self) -> None:
        """Cut the line; what still waits on it fails at once and closes it."""
        line, self._line = self._line, None
        if line is not None:
            shut_down(line)
            if line is not self._busy:
                line.pgconn.finish()

    async def say_goodbye(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def listen(self, opened: Callable[[], None]) -> None:
        line = await self._open()
        line.add_notify_handler(lambda notice: self._take(notice.payload.encode()))
        try:
            await say(line, f"LISTEN {CHANNEL}")
            opened()
            while True:
                await self._hear(line, PROBE_SECONDS)
                await say(line, "SELECT 1")
        finally:
            await line.close()

    async def _hear(self, line: Line, seconds: float) -> None:
        """Take notifications as they come, until the connection ends with an error. Nothing is done in between."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def read() -> None:
            try:
                self._take_all(line)
            except psycopg.Error as error:
                loop.remove_reader(fd)
                if not ended.done():
                    ended.set_exception(error)

        fd = line.fileno()
        loop.add_reader(fd, read)
        try:
            await asyncio.wait({ended}, timeout=seconds)
            if ended.done():
                ended.result()
        finally:
            loop.remove_reader(fd)

    def _take_all(self, line: Line) -> None:
        line.pgconn.consume_input()
        while notification := line.pgconn.notifies():
            self._take(notification.extra)

    def _take(self, hint: bytes) -> None:
        try:
            queues = wakeups.decode(hint)
        except Invalid as error:
            log.debug("hint not understood", extra={"broker": "postgresql", "why": str(error)})
            return
        for queue, count in queues.items():
            self.waiters.ring(queue, count)
        if not queues:
            self.waiters.wake_all()


def parse_address(url: str) -> str:
    """The address with our defaults added."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
        return make_conninfo(**{**DEFAULTS, **given})
    except psycopg.Error as error:
        raise Misconfigured(
            "the PostgreSQL address of the broker is wrong; "
            "it must look like postgresql://[user:password@]host[:port]/database"
        ) from error


async def say(line: Line, words: LiteralString) -> None:
    """Say something to the server, who may not answer."""

    async def said() -> None:
        await line.execute(words)

    # To be cancelled, the driver would ask the server: the line is cut instead.
    fault = await fault_of(said(), timeout=PATIENCE_SECONDS, hang_up=partial(shut_down, line))
    if fault is not None:
        raise fault


def shut_down(line: Line) -> None:
    """Let what waits on the line fail at once."""
    if line.closed:
        return
    with socket.socket(fileno=os.dup(line.fileno())) as duplicate:
        try:
            duplicate.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was quicker
