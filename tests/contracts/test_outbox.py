"""What every outbox promises: what it has put somewhere, an inbox finds there."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.servers import Server
from tests.servers.server import free_port
from weft.adapters.queues.rabbitmq import RabbitSink, RabbitSource
from weft.adapters.queues.redis import RedisSink, RedisSource
from weft.errors import OutboxDown
from weft.ports import Message, MessageSink, MessageSource, Reply

SOON = 10.0


@dataclass(frozen=True)
class Kind:
    outbox: Callable[[str], MessageSink]
    inbox: Callable[[str, int], MessageSource]
    named: str


KINDS = {"rabbitmq": Kind(RabbitSink, RabbitSource, "queue"), "redis": Kind(RedisSink, RedisSource, "stream")}


@dataclass
class Place:
    outbox: MessageSink
    inbox: MessageSource


@pytest_asyncio.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    kind = KINDS[request.param]
    server: Server = request.getfixturevalue(f"{request.param}_server")
    url = f"{server.url}?{kind.named}=out-{uuid.uuid4().hex}"
    async with AsyncExitStack() as stack:
        made = Place(kind.outbox(url), kind.inbox(url, 1000))
        stack.push_async_callback(made.inbox.close)
        stack.push_async_callback(made.outbox.close)
        yield made


async def test_what_was_published_is_there_whole(place: Place) -> None:
    sent = Message(id="m-1", body=b"\x00 body \xff", headers={"kind": "order"}, reply_to="x", correlation_id="c-1")
    await place.outbox.publish([sent])
    [got] = await place.inbox.receive(10, SOON)
    assert (got.body, got.headers, got.reply_to, got.correlation_id) == (
        b"\x00 body \xff",
        {"kind": "order"},
        "x",
        "c-1",
    )
    assert place.outbox.name == place.inbox.name


async def test_many_are_all_there_when_publishing_returns(place: Place) -> None:
    await place.outbox.publish([Message(id=f"m-{n}", body=str(n).encode()) for n in range(500)])
    got: list[Message] = []
    while len(got) < 500:
        some = await place.inbox.receive(500, SOON)
        assert some, f"only {len(got)} came"
        got += some
    assert sorted(int(each.body) for each in got) == list(range(500))


async def test_an_answer_is_heard_by_who_asked(place: Place) -> None:
    await place.outbox.publish([Message(id="m-1", body=b"?", reply_to=place.outbox.reply_to, correlation_id="c-1")])
    [asked] = await place.inbox.receive(1, SOON)
    for body in (b"first", b"second"):
        await place.inbox.reply([Reply(to=asked.reply_to, correlation_id=asked.correlation_id, body=body)])
    heard: list[Reply] = []
    while len(heard) < 2:
        some = await place.outbox.hear(SOON)
        assert some
        heard += some
    assert [(each.correlation_id, each.body) for each in heard] == [("c-1", b"first"), ("c-1", b"second")]
    assert await place.outbox.hear(0.01) == []


@pytest.mark.parametrize(("kind", "scheme"), [("rabbitmq", "amqp"), ("redis", "redis")])
async def test_a_queue_that_is_away_is_told_without_its_password(kind: str, scheme: str) -> None:
    outbox = KINDS[kind].outbox(f"{scheme}://weft:hushhush@127.0.0.1:{free_port()}")
    with pytest.raises(OutboxDown, match=r"does not answer .*; nothing was sent") as told:
        await outbox.publish([Message(id="m-1", body=b"")])
    assert "hushhush" not in str(told.value) + outbox.name
    await outbox.close()
