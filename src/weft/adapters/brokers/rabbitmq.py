"""Rings through RabbitMQ: each hint reaches one waiter of the whole cluster.

A queue of the server for each of ours: quorum where the server can, classic where it cannot, and as it is where someone
has declared it otherwise. Hints are published without confirms; they die after a minute, and unused queues after an hour.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Mapping
from typing import Any

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from aiormq.exceptions import ChannelPreconditionFailed, ConnectionNotImplemented
from yarl import URL

from weft.adapters.brokers import hints
from weft.adapters.brokers.ear import Ear
from weft.adapters.brokers.ringer import PATIENCE_SECONDS, Ringer
from weft.adapters.brokers.waiters import Waiters
from weft.errors import Misconfigured

PREFIX = "weft.doorbell."
LONGEST_NAME = 200
BOUNDS = {"x-max-length": 500, "x-overflow": "drop-head", "x-message-ttl": 60_000, "x-expires": 3_600_000}
QUORUM = {**BOUNDS, "x-queue-type": "quorum"}
CLASSIC = {**BOUNDS, "x-queue-type": "classic"}
PREFETCH = 8
HEARTBEAT_SECONDS = 10

# It reports each failed connect as an error of its own; weft says it once, when it begins and when it is over.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)


class RabbitBroker:
    """One connection that rings, one that listens."""

    def __init__(self, url: str) -> None:
        self._url = parse_address(url)
        self._waiters = Waiters()
        self._ear = Ear("rabbitmq", self._waiters, self._listen)
        self._ringer = Ringer("rabbitmq", self._send, self._hang_up, self._say_goodbye)
        self._line: Line | None = None

    async def ring(self, queues: Mapping[str, int]) -> None:
        await self._ringer.ring(queues)

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        return await self._ear.wait(queues, timeout)

    async def close(self) -> None:
        await self._ear.close()
        await self._ringer.close()

    async def _send(self, queues: Mapping[str, int]) -> None:
        if self._line is None:
            self._line = Line(self._url)
        await self._line.open()
        for queue, count in queues.items():
            name = await self._line.declared(queue)
            hint = hints.encode({queue: 1})
            for _ in range(count):
                await self._line.channel.basic_publish(hint, routing_key=name, wait=False)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.cut()
            self._line = None

    async def _say_goodbye(self) -> None:
        if self._line is not None:
            await self._line.close()

    async def _listen(self) -> None:
        line = Line(self._url)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await line.open()
                await line.channel.basic_qos(prefetch_count=PREFETCH)
            consumers = Consumers(line, self._waiters)
            await consumers.follow()
            self._ear.opened()
            await self._follow_until_closed(line, consumers)
        finally:
            line.cut()

    async def _follow_until_closed(self, line: Line, consumers: Consumers) -> None:
        closing = line.channel.closing
        while not closing.done():
            changed = asyncio.ensure_future(self._waiters.changed.wait())
            await asyncio.wait({changed, closing}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if not closing.done():
                await consumers.follow()
        await closing
