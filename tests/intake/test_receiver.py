"""From another system's queue to runs and back, on real servers that go away when they like."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.cli.commanding import Hand
from tests.conftest import OpenApp, on_sqlite
from tests.intake.ordering import body
from tests.intake.queues import Put, Queue, RabbitQueue, RedisQueue
from tests.projects.making import a_version
from tests.servers import Server
from tests.waiting import eventually
from weft.adapters.queues import redis
from weft.app import App, open_intake
from weft.errors import InboxDown
from weft.intake.model import DeadLetterFilter
from weft.intake.receiver import MessageReceiver, ReplySender
from weft.ports import Message, Reply
from weft.tasks.model import ProjectSettings

pytestmark = on_sqlite

QUEUES: dict[str, tuple[Callable[[Server, str], Queue], str]] = {
    "rabbitmq": (RabbitQueue, "own_rabbitmq_server"),
    "redis": (RedisQueue, "own_redis_server"),
}


@dataclass
class Scene:
    """A queue, its server, and a weft that takes from it."""

    server: Server
    queue: Queue
    app: App
    open: Callable[[], Any]
    stack: AsyncExitStack

    @property
    def answers(self) -> str:
        return f"{self.queue.dead}-answers"

    async def another(self) -> tuple[App, MessageReceiver, ReplySender]:
        """One more weft, as another process would be."""
        app = await self.open()
        [(receiver, replier)] = open_intake(app, app.runs._clock)
        self.stack.push_async_callback(receiver.inbox.close)
        return app, receiver, replier

    async def count(self) -> int:
        return sum((await self.app.runs.counts()).values())

    async def told(self) -> list[dict[str, Any]]:
        """The payloads of all replies that were not looked at yet."""
        return [json.loads(each.body)["payload"] for each in await self.queue.taken_from(self.answers)]


@pytest_asyncio.fixture(params=QUEUES)
async def scene(
    request: pytest.FixtureRequest, another_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    monkeypatch.setattr(redis, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(redis, "CLAIM_EVERY_SECONDS", 0.2)
    make, fixture = QUEUES[request.param]
    server: Server = request.getfixturevalue(fixture)
    queue = make(server, f"test-{uuid.uuid4().hex}")
    app = await another_app(intake=queue.url)
    await a_version(app, "shop")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(queue.close)
        yield Scene(server, queue, app, lambda: another_app(intake=queue.url), stack)


@asynccontextmanager
async def receiving(*receivers: MessageReceiver) -> AsyncIterator[None]:
    """Let receivers work as ``weft serve`` does."""

    async def work(receiver: MessageReceiver) -> None:
        while True:
            with suppress(ZeroDivisionError):
                await receiver.tick()

    working = [asyncio.create_task(work(each)) for each in receivers]
    try:
        yield
    finally:
        for each in working:
            each.cancel()
        for ended in await asyncio.gather(*working, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError)


def orders(count: int, start: int = 0, **fields: Any) -> list[Put]:
    return [Put(body(f"t-{number}"), **fields) for number in range(start, start + count)]


async def end_next(app: App, outcome: str = "succeeded", **fields: Any) -> int:
    hand = await Hand.join(app)
    lease = await hand.lease()
    await hand.end(lease, outcome, **fields)
    return lease.run_id


async def test_messages_become_runs_and_are_acknowledged(scene: Scene) -> None:
    app, receiver, _ = await scene.another()
    await scene.queue.put(*orders(30))
    async with receiving(receiver):
        await eventually(lambda: let_go(app) == 30)
    await receiver.inbox.close()
    assert await scene.queue.left() == 0
    assert await scene.count() == 30


def let_go(app: App) -> int:
    """How many messages this weft has acknowledged."""
    names = [f"weft_intake_{outcome}" for outcome in ("accepted", "known", "dead")]
    return sum(count for (name, _), count in app.meter.counts.items() if name in names)


async def is_true(look: Callable[[], Any], wanted: object) -> bool:
    return bool(await look() == wanted)


async def test_bad_messages_are_dead_letters_and_lie_beside_the_queue_and_block_nobody(scene: Scene) -> None:
    app, receiver, _ = await scene.another()
    bad = [b"not json", body("p", project="nowhere"), body("n", priority="high"), b"x" * 2_000_000]
    await scene.queue.put(*(put for each in bad for put in (Put(each), *orders(1, start=len(each)))))
    async with receiving(receiver):
        await eventually(lambda: let_go(app) == 2 * len(bad))
    await receiver.inbox.close()
    assert await scene.queue.left() == 0
    dead_letters = {each.reason for each in await scene.app.dead_letters.find(DeadLetterFilter())}
    dead = await scene.queue.taken_from(scene.queue.dead)
    assert {each.body for each in dead} == set(bad)
    assert {each.headers.get("weft-reason") or each.headers["reason"] for each in dead} == dead_letters


async def test_senders_are_told_at_once_and_at_the_end(scene: Scene) -> None:
    _, receiver, replier = await scene.another()
    await scene.queue.put(
        Put(body("good"), reply_to=scene.answers, correlation_id="c-1"),
        Put(body("bad", spider="nobody"), reply_to=scene.answers, correlation_id="c-2"),
        Put(body("silent")),
    )
    async with receiving(receiver):
        await eventually(lambda: is_true(scene.count, 2))
        replies: list[Any] = []

        async def both() -> bool:
            replies.extend(await scene.queue.taken_from(scene.answers))
            return len(replies) == 2

        await eventually(both)
    told = {each.correlation_id: json.loads(each.body) for each in replies}
    accepted, refused = told["c-1"]["payload"], told["c-2"]["payload"]
    assert (told["c-1"]["service"], told["c-1"]["action"]) == ("weft", "spider_status")
    assert (accepted["task_id"], accepted["status"]) == ("good", "accepted")
    assert (refused["task_id"], refused["status"]) == ("bad", "refused")
    assert refused["reason"].startswith("spider is 'nobody'")

    assert await replier.tick() == 0
    assert await end_next(scene.app, "failed", reason="no luck") == accepted["run_id"]
    assert await replier.tick() == 1
    [ended] = await scene.told()
    assert ended == {
        "task_id": "good",
        "status": "failed",
        "run_id": accepted["run_id"],
        "outcome": "failed",
        "reason": "no luck",
        "items": 0,
    }
    await end_next(scene.app)
    assert await replier.tick() == 0


async def test_the_end_of_a_run_is_told_by_a_weft_that_was_started_later(scene: Scene) -> None:
    first, receiver, replier = await scene.another()
    await scene.queue.put(*orders(3, reply_to=scene.answers))
    async with receiving(receiver):
        await eventually(lambda: let_go(first) == 3)
    assert await replier.tick() == 0
    await replier.close()
    assert len(await scene.told()) == 3
    ended = {await end_next(first) for _ in range(2)}
    _, _, later = await scene.another()
    assert await later.tick() == 2
    assert {each["run_id"] for each in await scene.told()} == ended
    ended = {await end_next(first)}
    assert await later.tick() == 1
    assert await later.tick() == 0
    assert {each["run_id"] for each in await scene.told()} == ended


async def test_a_reply_that_could_not_be_sent_is_sent_when_the_server_is_back(scene: Scene) -> None:
    app, receiver, replier = await scene.another()
    await scene.queue.put(*orders(1, reply_to=scene.answers))
    async with receiving(receiver):
        await eventually(lambda: let_go(app) == 1)
    await scene.told()
    await end_next(app)
    await asyncio.to_thread(scene.server.kill)
    try:
        assert await replier.tick() == 0
    finally:
        await asyncio.to_thread(scene.server.start)
    await scene.queue.close()
    await eventually(lambda: is_true(replier.tick, 1))
    assert (await scene.told())[-1]["status"] == "succeeded"


async def test_a_weft_that_dies_between_commit_and_acknowledgement_makes_no_second_run(scene: Scene) -> None:
    app, receiver, _ = await scene.another()
    await scene.queue.put(*orders(10))
    messages: list[Message] = []
    while len(messages) < 10:
        messages += await receiver.inbox.receive(10, 1.0)
    await app.intake.take(receiver.inbox.name, messages)
    await receiver.inbox.close()
    other, later, _ = await scene.another()
    await scene.queue.put(*orders(1, start=10))
    async with receiving(later):
        await eventually(lambda: let_go(other) >= 11)
    await later.inbox.close()
    assert await scene.count() == 11
    assert await scene.queue.left() == 0


@pytest.mark.parametrize("fault", [InboxDown("mq", "cut off"), ZeroDivisionError("a bug")], ids=["cut off", "bug"])
async def test_messages_whose_sender_could_not_be_told_come_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """The line that messages come on may be well while the other one is not."""
    app, receiver, _ = await scene.another()
    reply, faults = receiver.inbox.reply, [fault]

    async def failing(replies: Sequence[Reply]) -> None:
        if faults:
            raise faults.pop()
        await reply(replies)

    monkeypatch.setattr(receiver.inbox, "reply", failing)
    await scene.queue.put(*orders(3, reply_to=scene.answers))
    async with receiving(receiver):
        await eventually(lambda: let_go(app) == 3)
    assert not faults
    assert await scene.count() == 3
    assert len(await scene.told()) == 3


async def test_messages_stay_where_they_are_while_the_database_is_away(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    app, receiver, _ = await scene.another()
    app.db.close()
    await scene.queue.put(*orders(5))
    with caplog.at_level(logging.WARNING):
        async with receiving(receiver):
            await eventually(lambda: "messages wait for the database" in caplog.messages)
            await asyncio.sleep(1)
    assert caplog.messages.count("messages wait for the database") == 1
    await receiver.inbox.close()
    _, later, _ = await scene.another()
    async with receiving(later):
        await eventually(lambda: is_true(scene.count, 5))


async def test_a_server_that_is_killed_again_and_again_loses_and_doubles_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    _, first, _ = await scene.another()
    _, second, _ = await scene.another()
    with caplog.at_level(logging.WARNING):
        async with receiving(first, second):
            for turn in range(3):
                await eventually(lambda: first.fault is None and second.fault is None, timeout=60)
                await scene.queue.put(*orders(40, start=40 * turn))
                await asyncio.to_thread(scene.server.kill)
                await eventually(lambda: first.fault is not None and second.fault is not None)
                await asyncio.to_thread(scene.server.start)
                await scene.queue.close()
            await eventually(lambda: is_true(scene.count, 120), timeout=60)
    assert caplog.messages.count("inbox does not answer") == 6
    runs = await scene.app.runs.find({}, limit=500)
    assert len(runs) == 120
    for receiver in (first, second):
        await receiver.inbox.close()


async def test_a_full_queue_holds_up_no_other_project_and_is_filled_as_it_empties(scene: Scene) -> None:
    app, receiver, _ = await scene.another()
    await a_version(app, "news", digest="cd" * 32)
    await app.tasks.configure("shop", ProjectSettings(max_queued=2))
    await scene.queue.put(*orders(10), *(Put(body(f"n-{n}", project="news")) for n in range(10)))

    async def waiting(project: str) -> int:
        return len(await app.runs.find({"project": project}, limit=50))

    async def comes_to(project: str, count: int) -> None:
        await eventually(lambda: is_true(lambda: waiting(project), count))

    async with receiving(receiver):
        await comes_to("news", 10)
        assert await waiting("shop") == 2
        hand = await Hand.join(app)
        for taken in range(2, 11):
            await comes_to("shop", min(taken, 10))
            await lease_of(hand, "shop")
    assert not await app.dead_letters.find(DeadLetterFilter())


async def lease_of(hand: Hand, project: str) -> None:
    """Lease until one of the project was leased, so that there is room in its queue."""
    while (await hand.lease()).project != project:
        pass


async def test_what_came_and_how_the_inbox_is_can_be_seen(scene: Scene) -> None:
    app, receiver, _ = await scene.another()
    with pytest.raises(InboxDown, match="it was not asked yet"):
        await app.checks()["intake 1"]()
    await scene.queue.put(*orders(2), *orders(1), Put(b"?"), Put(b"!", reply_to=scene.answers))

    def counted(what: str) -> int:
        return app.meter.counts[f"weft_intake_{what}", (receiver.inbox.name,)]

    async with receiving(receiver):
        await eventually(lambda: counted("dead") == 2)
    await app.checks()["intake 1"]()
    found = [counted(what) for what in ("received", "accepted", "known", "dead", "later", "replies")]
    assert found == [5, 2, 1, 2, 0, 1]
    assert app.meter.histograms["weft_intake_seconds", (receiver.inbox.name,)].total > 0
    await asyncio.to_thread(scene.server.kill)
    try:
        with suppress(InboxDown):
            await receiver.tick()
        await eventually(lambda: receiver.tick() if receiver.fault is None else receiver.fault)
        with pytest.raises(InboxDown, match="does not answer"):
            await app.checks()["intake 1"]()
    finally:
        await asyncio.to_thread(scene.server.start)
