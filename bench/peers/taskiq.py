"""taskiq on Redis Streams: a task stays in the stream until it is acknowledged."""

import asyncio

from taskiq_redis import RedisStreamBroker

from bench.marks import mark
from bench.peers.app import QUEUE, URL

broker = RedisStreamBroker(URL, queue_name=QUEUE)


@broker.task
async def noop() -> None:
    mark()


def submit(tasks: int) -> None:
    asyncio.run(_submit(tasks))


async def _submit(tasks: int) -> None:
    await broker.startup()
    for _ in range(tasks):
        await noop.kiq()
    await broker.shutdown()
