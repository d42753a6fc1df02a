"""Orders into a durable queue of RabbitMQ, with the server's word that it has them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from aiormq.abc import DeliveredMessage
from pamqp import commands as spec

from weft.adapters.brokers.amqp import Line, parse_address
from weft.adapters.brokers.attempts import fault_of
from weft.adapters.inboxes.rabbitmq import PERSISTENT, QUEUE
from weft.errors import OutboxDown
from weft.ports import Message, Reply

ANSWER_SECONDS = 15.0
REPLIES = "amq.rabbitmq.reply-to"
"""No queue: the server brings replies to whoever published, for as long as the connection lasts."""


class RabbitOutbox:
    reply_to = REPLIES

    def __init__(self, url: str) -> None:
        address = parse_address(url)
        self._queue = address.query.get("queue", QUEUE)
        self._name = f"{address.scheme}://{address.host}:{address.port or 5672}{address.path}#{self._queue}"[:200]
        self._line = Line(address.without_query_params("queue"), [{}], confirms=True)
        self._was_open = False
        self._replies: asyncio.Queue[Reply] = asyncio.Queue()

    @property
    def name(self) -> str:
        return self._name

    async def publish(self, messages: Sequence[Message]) -> None:
        if not self._line.is_open:
            await self._guarded(self._open(), reached=self._was_open)
            self._was_open = True
        await self._guarded(self._confirmed(messages), reached=True)

    async def hear(self, timeout: float) -> list[Reply]:
        try:
            async with asyncio.timeout(timeout):
                heard = [await self._replies.get()]
        except TimeoutError:
            return []
        while not self._replies.empty():
            heard.append(self._replies.get_nowait())
        return heard

    async def close(self) -> None:
        await self._line.close()

    async def _open(self) -> None:
        await self._line.open()
        await self._line.declare(self._queue)
        await self._line.channel.basic_consume(REPLIES, self._take, no_ack=True)

    async def _take(self, delivered: DeliveredMessage) -> None:
        told = delivered.header.properties.correlation_id
        await self._replies.put(Reply(to=REPLIES, correlation_id=str(told or ""), body=delivered.body))

    async def _confirmed(self, messages: Sequence[Message]) -> None:
        publish = self._line.channel.basic_publish
        await asyncio.gather(
            *(
                publish(each.body, routing_key=self._queue, properties=_properties(each), wait=False)
                for each in messages
            )
        )

    async def _guarded(self, work: Coroutine[Any, Any, None], *, reached: bool) -> None:
        fault = await fault_of(work, timeout=ANSWER_SECONDS, hang_up=self._line.cut)
        if fault is not None:
            raise OutboxDown(self._name, fault, reached=reached) from fault


def _properties(message: Message) -> spec.Basic.Properties:
    return spec.Basic.Properties(
        content_type="application/json",
        delivery_mode=PERSISTENT,
        headers=dict(message.headers),
        message_id=message.id,
        reply_to=message.reply_to or None,
        correlation_id=message.correlation_id or None,
    )
