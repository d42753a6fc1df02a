"""What other systems may put into a queue without stopping it."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiormq
import pytest
import pytest_asyncio
from aiormq.abc import ChannelFrame
from pamqp import commands as spec
from pamqp.body import ContentBody
from pamqp.frame import marshal

from tests.intake.queues import Put, RabbitQueue, RedisQueue
from tests.servers import Server
from tests.waiting import eventually
from weft.adapters import registry
from weft.adapters.queues import rabbitmq
from weft.adapters.queues.rabbitmq import RabbitSource
from weft.adapters.queues.redis import RedisSource
from weft.errors import InboxDown, Invalid, Misconfigured
from weft.ports import Message, Reply


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


async def received(inbox: Any, count: int) -> list[Message]:
    found: list[Message] = []

    async def enough() -> bool:
        found.extend(await inbox.receive(count, 0.5))
        return len(found) >= count

    await eventually(enough)
    return found


async def put_raw(url: str, queue: str, properties: bytes, body: bytes) -> None:
    """Publish with properties that no careful sender would write."""
    connection = await aiormq.connect(url)
    channel = await connection.channel(publisher_confirms=False)
    assert isinstance(channel, aiormq.Channel)
    await channel.queue_declare(queue, durable=True)
    content = struct.pack(">HxxQ", spec.Basic.frame_id, len(body)) + properties
    header = struct.pack(">BHI", 2, channel.number, len(content)) + content + b"\xce"
    frames = [marshal(spec.Basic.Publish(routing_key=queue), channel.number), header]
    payload = b"".join([*frames, marshal(ContentBody(body), channel.number)])
    drained = asyncio.get_running_loop().create_future()
    await channel.write_queue.put(ChannelFrame(payload, False, drained))
    await drained
    await channel.queue_declare(queue, durable=True)
    await connection.close()


def correlation(text: bytes) -> bytes:
    return struct.pack(">HB", 1024, len(text)) + text


def table(field: bytes) -> bytes:
    return struct.pack(">HI", 8192, len(field)) + field


@pytest.mark.parametrize(
    "properties",
    [correlation(b"\xff\xfe"), table(b"\x02\xff\xfeS\x00\x00\x00\x01x"), table(b"\x01aS\x00\x00\x00\x02\xff\xfe")],
    ids=["correlation_id", "name of a header", "header"],
)
async def test_properties_that_are_no_text_stop_nothing(
    queue: RabbitQueue, inbox: RabbitSource, rabbitmq_server: Server, properties: bytes
) -> None:
    await put_raw(rabbitmq_server.url, queue.name, properties, b"odd")
    await queue.put(Put(b"plain", correlation_id="c"))
    odd, plain = await received(inbox, 2)
    assert (odd.body, plain.body, plain.correlation_id) == (b"odd", b"plain", "c")
    await inbox.bury([(odd, "odd"), (plain, "plain")])
    await inbox.done([odd, plain])
    assert {each.body for each in await queue.taken_from(queue.dead)} == {b"odd", b"plain"}


async def test_headers_of_every_kind_come_as_texts(queue: RabbitQueue, inbox: RabbitSource) -> None:
    headers: Any = {"n": 7, "list": [1, "a"], "none": None, "flag": True, "long": "x" * 5000, "": "nameless"}
    await queue.put(Put(b"x", headers=headers))
    [message] = await received(inbox, 1)
    assert message.headers["n"] == "7"
    await inbox.put_back([message])
    [again] = await received(inbox, 1)
    assert again.headers["long"] == "x" * 5000


async def test_large_messages_wait_on_the_server_until_there_is_room(
    queue: RabbitQueue, inbox: RabbitSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "MOST_BYTES", 3_000_000)
    monkeypatch.setattr(rabbitmq, "LARGEST_LOT", 1_500_000)
    await queue.put(*(Put(b"%02d" % n + b"x" * 1_000_000) for n in range(20)))
    seen: list[Message] = []
    async with asyncio.timeout(60):
        while len(seen) < 20:
            lot = await inbox.receive(50, 1.0)
            assert len(lot) <= 2
            assert inbox._bytes < 6_000_000
            await inbox.done(lot)
            seen += lot
    assert [each.body[:2] for each in seen] == [b"%02d" % n for n in range(20)]


async def test_a_queue_that_is_there_may_have_any_shape(rabbitmq_server: Server) -> None:
    queue = RabbitQueue(rabbitmq_server, f"test-{uuid.uuid4().hex}")
    connection = await aiormq.connect(rabbitmq_server.url)
    channel = await connection.channel()
    await channel.queue_declare(queue.name, durable=True, arguments={"x-queue-type": "quorum"})
    await channel.basic_publish(b"x", routing_key=queue.name)
    inbox = RabbitSource(queue.url, 5)
    [message] = await received(inbox, 1)
    await inbox.done([message])
    await inbox.close()
    await connection.close()


async def test_a_sender_whose_queue_is_full_keeps_no_other_from_being_told(
    queue: RabbitQueue, inbox: RabbitSource, rabbitmq_server: Server
) -> None:
    await queue.put(Put(b"x", reply_to=f"{queue.name}-open"))
    connection = await aiormq.connect(rabbitmq_server.url)
    full: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await (await connection.channel()).queue_declare(f"{queue.name}-full", durable=True, arguments=full)
    names = [f"{queue.name}-full"] * 5 + [f"{queue.name}-open"]
    await inbox.reply([Reply(to=name, correlation_id="", body=b"told") for name in names])
    assert [each.body for each in await queue.taken_from(f"{queue.name}-open")] == [b"told"]
    await connection.close()


async def test_a_message_that_cannot_be_put_back_is_not_lost(rabbitmq_server: Server) -> None:
    queue = RabbitQueue(rabbitmq_server, f"test-{uuid.uuid4().hex}")
    connection = await aiormq.connect(rabbitmq_server.url)
    channel = await connection.channel()
    full: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.queue_declare(queue.name, durable=True, arguments=full)
    await channel.basic_publish(b"held", routing_key=queue.name)
    inbox = RabbitSource(queue.url, 1)
    [message] = await received(inbox, 1)
    await channel.basic_publish(b"waiting", routing_key=queue.name)
    with pytest.raises(InboxDown):
        await inbox.put_back([message] * 2)
    await inbox.close()
    await eventually(lambda: is_left(queue, 2))
    await connection.close()
    await queue.close()


async def is_left(queue: RabbitQueue, count: int) -> bool:
    channel = await queue._channel()
    return bool((await channel.queue_declare(queue.name, passive=True)).message_count == count)


async def test_dead_letters_that_somebody_else_keeps_for_himself_hold_up_nobody(
    queue: RabbitQueue, inbox: RabbitSource, rabbitmq_server: Server
) -> None:
    connection = await aiormq.connect(rabbitmq_server.url)
    await (await connection.channel()).queue_declare(queue.dead, exclusive=True)
    await queue.put(Put(b"bad"))
    [message] = await received(inbox, 1)
    await inbox.bury([(message, "bad")])
    await inbox.done([message])
    await connection.close()
    assert await inbox.receive(1, 0.3) == []


async def test_a_queue_that_is_deleted_is_made_again(
    queue: RabbitQueue, inbox: RabbitSource, rabbitmq_server: Server
) -> None:
    await inbox.receive(1, 0.1)
    connection = await aiormq.connect(rabbitmq_server.url)
    await (await connection.channel()).queue_delete(queue.name)
    await connection.close()

    async def gone() -> bool:
        try:
            return not await inbox.receive(1, 0.1) and inbox._line is not None and inbox._line.is_open
        except InboxDown:
            return False

    await eventually(gone)
    await queue.put(Put(b"new"))
    assert [each.body for each in await received(inbox, 1)] == [b"new"]


async def test_a_stream_that_is_deleted_is_made_again(redis_server: Server) -> None:
    queue = RedisQueue(redis_server, f"test-{uuid.uuid4().hex}")
    inbox = RedisSource(queue.url, 5)
    await queue.put(Put(b"old"))
    await received(inbox, 1)
    await queue.taken_from(queue.name)
    await queue.put(Put(b"new"))
    assert [each.body for each in await received(inbox, 1)] == [b"new"]
    await inbox.close()
    await queue.close()


async def test_entries_without_a_body_and_with_odd_bytes_are_messages_too(redis_server: Server) -> None:
    queue = RedisQueue(redis_server, f"test-{uuid.uuid4().hex}")
    inbox = RedisSource(queue.url, 5)
    line = await queue._line()
    await line.call("XADD", queue.name, "*", "text", "no body")
    await line.call("XADD", queue.name, "*", "body", b"\xff", b"\xfe", b"\xfd", "reply_to", b"\xff")
    bare, odd = await received(inbox, 2)
    assert (bare.body, bare.headers) == (b"", {"text": "no body"})
    assert odd.body == b"\xff"
    await inbox.bury([(bare, "bare"), (odd, "odd")])
    await inbox.done([bare, odd])
    assert len(await queue.taken_from(queue.dead)) == 2
    await inbox.close()
    await queue.close()


async def test_a_reply_to_what_is_no_stream_keeps_no_other_from_being_told(redis_server: Server) -> None:
    queue = RedisQueue(redis_server, f"test-{uuid.uuid4().hex}")
    inbox = RedisSource(queue.url, 5)
    line = await queue._line()
    await line.call("SET", f"{queue.name}-text", "x")
    names = [f"{queue.name}-text", f"{queue.name}-stream"]
    await inbox.reply([Reply(to=name, correlation_id="c", body=b"told") for name in names])
    assert [each.body for each in await queue.taken_from(names[1])] == [b"told"]
    await inbox.close()
    await queue.close()


@pytest.mark.parametrize("url", ["amqp://", "amqp://h:port/", "redis://", "redis://h/x", f"amqp://h?queue={'x' * 300}"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured):
        registry.open_inbox(url, 10)


def test_an_inbox_of_another_kind_is_refused() -> None:
    with pytest.raises(Invalid, match="it must begin with amqp:, amqps:, redis: or rediss:"):
        registry.open_inbox("kafka://h", 10)
