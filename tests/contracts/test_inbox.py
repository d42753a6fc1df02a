"""What every inbox promises. Two objects on one address stand for two processes."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tests.intake.queues import Put, Queue, RabbitQueue, RedisQueue
from tests.servers import Server
from tests.waiting import eventually
from weft.adapters.queues import redis
from weft.adapters.queues.rabbitmq import RabbitSource
from weft.adapters.queues.redis import RedisSource
from weft.errors import InboxDown
from weft.ports import Message, MessageSource, Reply

SOON = 10.0
"""Seconds within which something comes, with much to spare for a busy machine."""
MOMENT = 0.3
PREFETCH = 20


@dataclass(frozen=True, kw_only=True)
class Kind:
    inbox: Callable[[str, int], MessageSource]
    queue: Callable[[Server, str], Queue]
    server: str


@dataclass
class Place:
    """A queue on a server, and the inboxes that were opened on it."""

    kind: Kind
    server: Server
    queue: Queue
    opened: list[MessageSource] = field(default_factory=list)

    def open(self) -> MessageSource:
        self.opened.append(self.kind.inbox(self.queue.url, PREFETCH))
        return self.opened[-1]


KINDS = {
    "rabbitmq": Kind(inbox=RabbitSource, queue=RabbitQueue, server="rabbitmq_server"),
    "redis": Kind(inbox=RedisSource, queue=RedisQueue, server="redis_server"),
}


@pytest_asyncio.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    kind = KINDS[request.param]
    async with opened_place(kind, request.getfixturevalue(kind.server), monkeypatch) as place:
        yield place


@asynccontextmanager
async def opened_place(kind: Kind, server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(redis, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(redis, "CLAIM_EVERY_SECONDS", 0.2)
    place = Place(kind, server, kind.queue(server, f"test-{uuid.uuid4().hex}"))
    yield place
    for inbox in place.opened:
        await inbox.close()
    await place.queue.close()


async def received(inbox: MessageSource, count: int) -> list[Message]:
    """So many messages, however many come at once."""
    found: list[Message] = []
    async with asyncio.timeout(SOON):
        while len(found) < count:
            found += await inbox.receive(count - len(found), 1.0)
    return found


async def again(inbox: MessageSource, count: int) -> list[Message]:
    """The same of a server that is coming back."""
    found: list[Message] = []
    troubles: list[str] = []

    async def enough() -> bool:
        try:
            found.extend(await inbox.receive(PREFETCH, 0.2))
        except InboxDown as trouble:
            troubles.append(str(trouble))
            return False
        return len({each.body for each in found}) >= count

    try:
        await eventually(enough, timeout=60)
    except AssertionError as late:
        raise AssertionError(f"{len(found)} of {count} came; {len(troubles)} troubles: {troubles[-3:]}") from late
    return found


def numbered(count: int, **more: Any) -> list[Put]:
    return [Put(b'{"n": %d}' % number, **more) for number in range(count)]


async def test_messages_come_as_they_were_put(place: Place) -> None:
    put = Put(b"\x00\xff not text", reply_to=f"{place.queue.dead}-r", correlation_id="c-1", headers={"x-from": "é"})
    await place.queue.put(put)
    [message] = await received(place.open(), 1)
    assert (message.body, message.reply_to, message.correlation_id) == (put.body, put.reply_to, "c-1")
    assert message.headers["x-from"] == "é"
    assert message.id


async def test_messages_come_in_their_order_and_no_more_than_asked_for(place: Place) -> None:
    await place.queue.put(*numbered(7))
    inbox = place.open()
    first = await received(inbox, 3)
    assert len(first) == 3
    rest = await received(inbox, 4)
    assert [each.body for each in first + rest] == [each.body for each in numbered(7)]


async def test_nothing_comes_after_the_timeout(place: Place) -> None:
    assert await place.open().receive(10, MOMENT) == []


async def test_a_message_that_comes_while_somebody_waits_is_received(place: Place) -> None:
    inbox = place.open()
    await inbox.receive(1, MOMENT)
    waiting = asyncio.create_task(inbox.receive(1, SOON))
    await asyncio.sleep(MOMENT)
    await place.queue.put(Put(b"late"))
    async with asyncio.timeout(SOON):
        assert [each.body for each in await waiting] == [b"late"]


async def test_what_is_done_is_gone_for_good(place: Place) -> None:
    await place.queue.put(*numbered(5))
    inbox = place.open()
    await inbox.done(await received(inbox, 5))
    await inbox.close()
    assert await place.open().receive(5, 3 * MOMENT) == []
    assert await place.queue.left() == 0


async def test_what_is_done_out_of_order_leaves_the_others_alone(place: Place) -> None:
    await place.queue.put(*numbered(5))
    inbox = place.open()
    messages = await received(inbox, 5)
    await inbox.done([messages[3], messages[1]])
    await inbox.close()
    left = await again(place.open(), 3)
    assert {each.body for each in left} == {messages[number].body for number in (0, 2, 4)}


async def test_what_was_received_and_is_not_done_comes_again_elsewhere(place: Place) -> None:
    await place.queue.put(*numbered(5))
    first = place.open()
    lost = await received(first, 5)
    await first.close()
    assert {each.body for each in await again(place.open(), 5)} == {each.body for each in lost}


async def test_a_message_that_comes_again_has_the_same_id(place: Place) -> None:
    await place.queue.put(Put(b"one"), Put(b"two", message_id="mine"))
    first = place.open()
    ids = {each.body: each.id for each in await received(first, 2)}
    await first.close()
    assert {each.body: each.id for each in await again(place.open(), 2)} == ids


async def test_two_processes_share_a_queue(place: Place) -> None:
    first, second = place.open(), place.open()
    for inbox in (first, second):
        await inbox.receive(1, MOMENT)
    await place.queue.put(*numbered(3 * PREFETCH))
    found: list[bytes] = []

    async def drain(inbox: MessageSource) -> None:
        while messages := await inbox.receive(5, 2 * MOMENT):
            found.extend(each.body for each in messages)
            await inbox.done(messages)

    await asyncio.gather(drain(first), drain(second))
    assert sorted(found) == sorted(each.body for each in numbered(3 * PREFETCH))


async def test_a_process_holds_no_more_messages_than_its_prefetch(place: Place) -> None:
    await place.queue.put(*numbered(3 * PREFETCH))
    inbox = place.open()
    assert len(await received(inbox, PREFETCH)) == PREFETCH
    assert len(await again(place.open(), PREFETCH)) >= PREFETCH


async def test_what_is_put_back_comes_after_the_others(place: Place) -> None:
    await place.queue.put(Put(b"first", correlation_id="c", headers={"x": "1"}), Put(b"second"))
    inbox = place.open()
    [first] = await received(inbox, 1)
    await inbox.put_back([first])
    second, third = await received(inbox, 2)
    assert [second.body, third.body] == [b"second", b"first"]
    assert (third.correlation_id, third.headers["x"]) == ("c", "1")
    await inbox.done([second, third])
    await inbox.close()
    assert await place.queue.left() == 0


async def test_a_buried_message_lies_beside_the_queue_with_its_reason(place: Place) -> None:
    await place.queue.put(Put(b"bad", headers={"x-from": "a"}))
    inbox = place.open()
    [message] = await received(inbox, 1)
    await inbox.bury([(message, "it is bad")])
    await inbox.done([message])
    [dead] = await place.queue.taken_from(place.queue.dead)
    assert dead.body == b"bad"
    assert dead.headers["x-from"] == "a"
    assert "it is bad" in (dead.headers.get("weft-reason"), dead.headers.get("reason"))


async def test_a_large_message_is_received_and_buried_whole(place: Place) -> None:
    body = b"x" * 10_000_000
    await place.queue.put(Put(body))
    inbox = place.open()
    [message] = await received(inbox, 1)
    assert message.body == body
    await inbox.bury([(message, "large")])
    [dead] = await place.queue.taken_from(place.queue.dead)
    assert dead.body == body


async def test_replies_reach_who_asked(place: Place) -> None:
    answers = f"{place.queue.dead}-answers"
    await place.queue.put(Put(b"ask", reply_to=answers))
    inbox = place.open()
    await inbox.reply([Reply(to=answers, correlation_id=f"c{n}", body=b"%d" % n) for n in range(3)])
    got = await place.queue.taken_from(answers)
    assert [(each.correlation_id, each.body) for each in got] == [("c0", b"0"), ("c1", b"1"), ("c2", b"2")]


async def test_a_reply_to_nobody_is_no_error(place: Place) -> None:
    await place.open().reply([Reply(to=f"nobody-{uuid.uuid4().hex}", correlation_id="", body=b"x")])


async def test_the_name_tells_the_queue_and_no_password(place: Place) -> None:
    url = place.queue.url.replace("guest:guest@", "guest:hunter2@").replace("redis://", "redis://:hunter2@")
    name = place.kind.inbox(url, 1).name
    assert place.queue.url.partition("=")[2] in name
    assert "hunter2" not in name
