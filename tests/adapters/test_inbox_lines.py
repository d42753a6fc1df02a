"""Lines of the RabbitMQ inbox that are replaced by others: nothing of the old one may be left."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest_asyncio

from tests.intake.queues import RabbitQueue
from tests.servers import Server
from tests.waiting import eventually
from weft.adapters.brokers.amqp import AmqpConnection
from weft.adapters.queues.rabbitmq import RabbitSource
from weft.errors import InboxDown
from weft.ports import Reply


@pytest_asyncio.fixture
async def queue(rabbitmq_server: Server) -> AsyncIterator[RabbitQueue]:
    queue = RabbitQueue(rabbitmq_server, f"test-{uuid.uuid4().hex}")
    yield queue
    await queue.close()


@pytest_asyncio.fixture
async def inbox(queue: RabbitQueue) -> AsyncIterator[RabbitSource]:
    inbox = RabbitSource(queue.url, 50)
    yield inbox
    await inbox.close()


async def test_a_line_whose_channel_was_closed_is_hung_up_on(queue: RabbitQueue, inbox: RabbitSource) -> None:
    await inbox.receive(1, 0.1)
    await inbox.reply([Reply(to="nobody", correlation_id="", body=b"x")])
    old = [line for line in (inbox._line, inbox._publisher) if line is not None]
    assert len(old) == 2
    for line in old:
        await line.channel.close()
    with suppress(InboxDown):
        await inbox.receive(1, 0.1)
    await inbox.receive(1, 0.1)
    await inbox.reply([Reply(to="nobody", correlation_id="", body=b"x")])
    await eventually(lambda: all(is_hung_up(line) for line in old))


def is_hung_up(line: AmqpConnection) -> bool:
    return line._connection is not None and line._connection.is_closed
