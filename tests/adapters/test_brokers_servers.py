"""What is particular to one server: its addresses, its credentials, its bounds."""

import asyncio
import gc
import select
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiormq
import psycopg
import pytest
from aiormq.exceptions import ChannelPreconditionFailed

from tests import servers
from tests.cases import for_each
from tests.servers import Server
from weft.adapters.brokers import amqp, redis, resp
from weft.adapters.brokers.postgres import CHANNEL, PostgresTransport, postgres_broker
from weft.adapters.brokers.rabbitmq import rabbitmq_broker
from weft.adapters.brokers.redis import redis_broker
from weft.adapters.brokers.wakeups import LARGEST, decode, encode_parts
from weft.errors import BrokerDown, Misconfigured
from weft.ports import Broker


@for_each(
    ("broker", "url"),
    [
        (redis_broker, "redis://:hush@host:99999/0"),
        (redis_broker, "redis://:hush@host/first"),
        (redis_broker, "redis://:hush@host/-1"),
        (redis_broker, "redis://user:hush/more@host"),
        (redis_broker, "redis://user:6379/hush@host"),
        (redis_broker, "redis://"),
        (redis_broker, "http://user:hush@host"),
        (rabbitmq_broker, "amqp://user:hush@host:port/"),
        (rabbitmq_broker, "amqp://"),
        (rabbitmq_broker, "http://user:hush@host"),
        (postgres_broker, "postgresql://user:hush@host/database?no_such_option=1"),
        (postgres_broker, "postgresql://user:hush@[host"),
    ],
)
def test_a_wrong_address_is_refused_without_telling_its_password(broker: type, url: str) -> None:
    with pytest.raises(Misconfigured, match=r"address of the broker is wrong.*; it must look like") as refused:
        broker(url)
    assert "hush" not in str(refused.value)


async def listening(worker: Broker, queue: str) -> None:
    """Return when the worker is connected, for which it is woken once, and has heard all that there was."""
    assert await worker.wait({queue}, 60)
    while await worker.wait({queue}, 0.3):
        pass


async def test_redis_is_told_the_password_and_the_database_of_the_address() -> None:
    with servers.redis() as server:
        admin = await resp.Connection.open(resp.Address.parse(server.url))
        await admin.call("CONFIG", "SET", "requirepass", "hu/sh")
        broker = redis_broker(f"redis://:hu%2Fsh@127.0.0.1:{server.port}/3")
        await broker.ring({"q": 1})
        await admin.call("SELECT", 3)
        assert await admin.call("EXISTS", redis.PREFIX + "q") == 1
        await broker.close()
        await admin.close()


async def test_a_wrong_password_is_an_answer_of_one_sentence_without_it() -> None:
    with servers.redis() as server:
        admin = await resp.Connection.open(resp.Address.parse(server.url))
        await admin.call("CONFIG", "SET", "requirepass", "right")
        broker = redis_broker(f"redis://:hush@127.0.0.1:{server.port}")
        with pytest.raises(BrokerDown, match="WRONGPASS") as refused:
            await broker.ring({"q": 1})
        assert "hush" not in str(refused.value)
        await broker.close()
        await admin.close()


async def test_a_stream_that_nobody_reads_stays_small(redis_server: Server) -> None:
    queue = uuid.uuid4().hex
    broker = redis_broker(redis_server.url)
    for _ in range(20):
        await broker.ring({queue: 1000})
    admin = await resp.Connection.open(resp.Address.parse(redis_server.url))
    assert 100 <= await admin.call("XLEN", redis.PREFIX + queue) < 2 * redis.MOST_KEPT
    assert 0 < await admin.call("TTL", redis.PREFIX + queue) <= redis.FORGOTTEN_AFTER_SECONDS
    await admin.close()
    await broker.close()


async def test_processes_that_came_and_went_leave_no_consumer_behind(redis_server: Server) -> None:
    queue = uuid.uuid4().hex
    for _ in range(3):
        broker = redis_broker(redis_server.url)
        await broker.ring({queue: 1})
        assert await broker.wait({queue}, 5)
        await broker.wait({queue}, 0.2)
        await broker.close()
    admin = await resp.Connection.open(resp.Address.parse(redis_server.url))
    assert len(await admin.call("XINFO", "CONSUMERS", redis.PREFIX + queue, redis.GROUP)) == 1
    await admin.close()


async def test_hints_are_kept_in_a_quorum_queue(rabbitmq_server: Server) -> None:
    queue = uuid.uuid4().hex
    broker = rabbitmq_broker(rabbitmq_server.url)
    await broker.ring({queue: 1})
    connection = await aiormq.connect(rabbitmq_server.url)
    channel = await connection.channel()
    classic: dict[str, Any] = amqp.CLASSIC
    with pytest.raises(ChannelPreconditionFailed, match="quorum"):
        await channel.queue_declare(amqp.server_name(queue), durable=True, arguments=classic)
    await connection.close()
    await broker.close()


@pytest.mark.parametrize("arguments", [amqp.CLASSIC, {}], ids=["as a server without quorum queues has it", "bare"])
async def test_a_queue_that_is_there_in_another_shape_is_used_as_it_is(
    rabbitmq_server: Server, arguments: dict[str, Any]
) -> None:
    queue = uuid.uuid4().hex
    connection = await aiormq.connect(rabbitmq_server.url)
    channel = await connection.channel()
    await channel.queue_declare(amqp.server_name(queue), durable=True, arguments=arguments)
    broker = rabbitmq_broker(rabbitmq_server.url)
    await broker.wait({queue}, 0.5)
    assert not await broker.wait({queue}, 0.2)
    await broker.ring({queue: 1})
    assert await broker.wait({queue}, 5)
    await broker.close()
    await connection.close()


async def test_a_deleted_queue_is_made_again_for_those_who_wait(rabbitmq_server: Server) -> None:
    queue = uuid.uuid4().hex
    worker = rabbitmq_broker(rabbitmq_server.url)
    await listening(worker, queue)
    waiting = asyncio.create_task(worker.wait({queue}, 30))
    connection = await aiormq.connect(rabbitmq_server.url)
    channel = await connection.channel()
    await asyncio.sleep(0)
    await channel.queue_delete(amqp.server_name(queue))
    async with asyncio.timeout(5):
        assert await waiting
        declared = await channel.queue_declare(amqp.server_name(queue), passive=True)
    assert declared.queue == amqp.server_name(queue)
    await connection.close()
    await worker.close()


async def test_a_notification_of_someone_else_wakes_nobody(postgres_server: Server) -> None:
    worker = postgres_broker(postgres_server.url)
    await listening(worker, "q")
    with psycopg.connect(postgres_server.url, autocommit=True) as stranger:
        for nonsense in ("", "hello", "{}", '{"service": "weft"}'):
            stranger.execute("SELECT pg_notify(%s, %s)", [CHANNEL, nonsense])
    assert not await worker.wait({"q"}, 0.3)
    await worker.close()


async def test_a_notification_holds_more_queues_than_fit_into_one(postgres_server: Server) -> None:
    bell, worker = postgres_broker(postgres_server.url), postgres_broker(postgres_server.url)
    await listening(worker, "q")
    names = [f"{number:03}-{'x' * 100}" for number in range(200)]
    await bell.ring(dict.fromkeys(names, 1))
    assert await worker.wait({names[0]}, 5)
    assert await worker.wait({names[-1]}, 5)
    await bell.close()
    await worker.close()


def test_no_part_of_a_hint_is_too_large_and_nothing_is_left_out() -> None:
    queues = {f'"{number}é' * 20: number for number in range(300)}
    parts = encode_parts(queues)
    assert max(map(len, parts)) <= LARGEST
    assert {queue: count for part in parts for queue, count in decode(part).items()} == queues


def test_a_name_that_fits_into_no_hint_rings_for_everyone() -> None:
    assert [decode(part) for part in encode_parts({"x" * 10_000: 1, "q": 2})] == [{}, {"q": 2}]


async def test_a_connection_that_is_hung_up_is_closed_also_where_nobody_waits_on_it(postgres_server: Server) -> None:
    transport = PostgresTransport(postgres_server.url)
    await transport.send({"q": 1})
    with forgotten_connections() as told:
        transport.hang_up()
    assert told == []


async def test_a_connection_that_is_hung_up_is_closed_also_where_the_answer_has_come(postgres_server: Server) -> None:
    transport = PostgresTransport(postgres_server.url)
    await transport.send({"q": 1})
    assert transport._line is not None
    line = transport._line.fileno()
    sending = asyncio.create_task(transport.send({"q": 1}))
    await asyncio.sleep(0)
    assert select.select([line], [], [], 10)[0], "the answer must be there before the connection is hung up"
    with forgotten_connections() as told:
        transport.hang_up()
        await sending
    assert told == []


async def test_a_ring_after_the_end_opens_no_connection(postgres_server: Server) -> None:
    broker = postgres_broker(postgres_server.url)
    await broker.ring({"q": 1})
    await broker.close()
    await broker.ring({"q": 1})
    with forgotten_connections() as told:
        del broker
    assert told == []


@contextmanager
def forgotten_connections() -> Iterator[list[str]]:
    """What the driver says of connections that nobody has closed."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield told
        gc.collect()
    told += [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)]
