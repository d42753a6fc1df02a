"""Rings through RabbitMQ: each hint reaches one waiter of the whole cluster.

Hints are published without confirms and acknowledged on receipt; on the server they die after a minute, and queues
that nobody uses after an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiormq.abc import DeliveredMessage

from weft.adapters.brokers import wakeups
from weft.adapters.brokers.amqp import CLASSIC, QUORUM, AmqpConnection, parse_address
from weft.adapters.brokers.server import PATIENCE_SECONDS, ServerBroker
from weft.adapters.brokers.wakeups import Waiters

PREFETCH = 8


def rabbitmq_broker(url: str) -> ServerBroker:
    return ServerBroker("rabbitmq", RabbitTransport(url), reaches_all=False)


class RabbitTransport:
    """One connection that rings, one that listens."""

    def __init__(self, url: str) -> None:
        self._url = parse_address(url)
        self._shapes: list[dict[str, Any]] = [QUORUM, CLASSIC]
        self.waiters = Waiters()
        self._line: AmqpConnection | None = None

    async def send(self, queues: Mapping[str, int]) -> None:
        if self._line is None or not self._line.is_open:
            self._line = AmqpConnection(self._url, self._shapes)
            await self._line.open()
        for queue, count in queues.items():
            await self._line.publish(await self._line.declared(queue), wakeups.encode({queue: 1}), count)

    def hang_up(self) -> None:
        if self._line is not None:
            self._line.cut()
            self._line = None

    async def say_goodbye(self) -> None:
        if self._line is not None:
            await self._line.close()

    async def listen(self, opened: Callable[[], None]) -> None:
        line = AmqpConnection(self._url, self._shapes)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await line.open()
                await line.channel.basic_qos(prefetch_count=PREFETCH)
            consumers = Consumers(line, self.waiters)
            await consumers.follow()
            opened()
            await self._follow_until_closed(line, consumers)
        finally:
            await line.close()

    async def _follow_until_closed(self, line: AmqpConnection, consumers: Consumers) -> None:
        closing = line.channel.closing
        while not closing.done():
            changed = asyncio.ensure_future(self.waiters.changed.wait())
            await asyncio.wait({changed, closing}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if not closing.done():
                await consumers.follow()
        await closing


class Consumers:
    """The subscriptions of one line: a queue's begins when someone waits for it.

    It ends with the first hint that nobody here waits for; that hint goes back to the server, for another process.
    """

    def __init__(self, line: AmqpConnection, waiters: Waiters) -> None:
        self._line, self._waiters = line, waiters
        self._subscribed: set[str] = set()
        self._unwanted: dict[str, list[int]] = {}
        # The server takes a consumer away when its queue is deleted or moves: begin again.
        line.channel.on_consumer_cancel_callbacks.add(lambda _: line.cut())

    async def follow(self) -> None:
        """Subscribe to every queue that someone waits for."""
        self._waiters.changed.clear()
        for queue in self._waiters.queues - self._subscribed:
            await self._subscribe(queue)

    async def _subscribe(self, queue: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            name = await self._line.declared(queue)
        self._subscribed.add(queue)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._line.channel.basic_consume(name, partial(self._take, queue), consumer_tag=name)
        except TimeoutError:
            # A quorum queue made just before its server was killed is remembered but never answers. It holds nothing
            # but hints, so away with it; the next line declares it anew.
            await self._line.delete(name)
            raise

    async def _take(self, queue: str, message: DeliveredMessage) -> None:
        tag = message.delivery_tag
        assert tag is not None
        if self._waiters.offer(queue, 1):
            await self._line.channel.basic_ack(tag, wait=False)
        else:
            await self._give_back(queue, tag)

    async def _give_back(self, queue: str, tag: int) -> None:
        """Unsubscribe first, or the server would hand us the same hint again; those that come meanwhile go along."""
        self._unwanted.setdefault(queue, []).append(tag)
        if len(self._unwanted[queue]) > 1:
            return
        await self._line.channel.basic_cancel(await self._line.declared(queue))
        for unwanted in self._unwanted.pop(queue):
            await self._line.channel.basic_nack(unwanted, wait=False)
        self._subscribed.discard(queue)
        self._waiters.changed.set()  # someone may have begun to wait meanwhile
