"""Intake: every message becomes one run or one dead letter, whatever is killed on the way.

Other systems publish to RabbitMQ and to a stream of Redis, and publish again what was not confirmed. Some messages
come twice, some can never become a run. Meanwhile RabbitMQ, Redis and the control process are killed in turn. Red
controls: messages are acknowledged before the commit; the id of a message is not remembered.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from experiments import chaos
from experiments.cluster import Cluster, Role, answers
from experiments.correspondence import Post, deploy, end_asked, judge, settled, written
from experiments.publishing import Publisher, ToRabbit, ToRedis, publish_surely
from experiments.report import Report
from tests import servers
from tests.waiting import eventually
from weft.app import App

EARLY, FORGETFUL = "intake:acknowledge_early", "intake:forget_ids"
UNCOMMITTED_SECONDS = 5.0
"""How long the red control sits on what it has let go of: no kill comes later than that."""

AT_ONCE = 20
"""Messages that a publisher has under way."""

ACKNOWLEDGED_SECONDS = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it."""

    messages: int
    kills: int
    every: chaos.Span
    down: chaos.Span
    patience: float = 120.0


REDUCED = Size(messages=600, kills=6, every=(0.4, 1.2), down=(0.0, 0.8))
FULL = Size(messages=5_000, kills=20, every=(1.0, 3.0), down=(0.0, 3.0))
SHOWING = Size(messages=200, kills=4, every=(0.4, 0.8), down=(0.0, 0.1), patience=6.0)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("Intake")
    with servers.rabbitmq() as rabbit, servers.redis() as redis:
        if red:
            await scene(report, "acknowledged early", [rabbit], SHOWING, red=EARLY)
            await scene(report, "ids forgotten", [rabbit], SHOWING, red=FORGETFUL)
        else:
            await scene(report, "SQLite", [rabbit, redis], FULL if full else REDUCED)
        if full and not red:
            with servers.postgresql() as database:
                await scene(report, "PostgreSQL", [rabbit, redis], FULL, database=database.new_database())
    return report


async def scene(
    report: Report,
    name: str,
    sources: Sequence[servers.Server],
    size: Size,
    *,
    database: str = "",
    red: str | None = None,
) -> None:
    began, queue = time.monotonic(), "tasks-of-" + name.replace(" ", "-").lower()
    publishers = [publisher_to(server, queue) for server in sources]
    posts = [Post(each, written(each.name, size.messages // len(sources), answers_to(queue))) for each in publishers]
    with Cluster(database=database, intake=",".join(inbox(server, queue) for server in sources)) as cluster:
        async with cluster.app() as app:
            await deploy(app)
            serve = cluster.serve(red=red)
            await cluster.ready(app)
            victims = [control_victim(cluster, serve), *([] if red else map(chaos.server_victim, sources))]
            in_hand = partial(nothing_waits, posts) if red else None
            killing = chaos.Chaos(victims, random.Random(), in_hand)
            again = await publish_under_fire(posts, killing, size)
            sent = [each for post in posts for each in post.sent]
            await settled(app, sent, size.patience)
            if not red:
                await hear(report, app, posts, killing, size)
                await let_go_of(posts)
            fallen = [*killing.fallen, *cluster.fallen()]
            serve.ask_to_stop()
            await serve.ended()
            more = {"kills": killing.kills.total(), "seconds": time.monotonic() - began}
            report.add(name, await judge(app, sent, **more))
        report.expect(not fallen, f"{name}: without being killed {fallen}")
    report.note(f"{name}: kills {dict(killing.kills)}; {again} publishes were not confirmed and made again")
    for publisher in publishers:
        left = await publisher.left()
        report.expect(left == 0, f"{name}: {left} messages were left at {publisher.name}")
        await publisher.close()


def publisher_to(server: servers.Server, queue: str) -> Publisher:
    is_redis = server.kind.name == "redis"
    return (
        ToRedis(server.port, queue, answers_to(queue)) if is_redis else ToRabbit(server.url, queue, answers_to(queue))
    )


def answers_to(queue: str) -> str:
    return f"{queue}-answers"


def inbox(server: servers.Server, queue: str) -> str:
    """What weft is told to listen to."""
    return f"{server.url}?{'stream' if server.kind.name == 'redis' else 'queue'}={queue}"


def control_victim(cluster: Cluster, role: Role) -> chaos.Victim:
    """A control process counts as up once it answers: only then can a kill take a message out of its hands."""

    def start() -> None:
        role.start()
        asyncio.run(eventually(lambda: not role.alive or answers(cluster.ports[role.name], "/healthz"), 120))

    return chaos.Victim(role.name, role.kill, start, lambda: role.alive)


async def publish_under_fire(posts: Sequence[Post], killing: chaos.Chaos, size: Size) -> int:
    """Publish a part of the messages for each kill, so that messages are under way at every one of them."""

    async def publish(post: Post) -> int:
        again, count = 0, len(post.sent)
        gap = size.every[0] * size.kills / (count / AT_ONCE) / 2
        for start in range(0, count, AT_ONCE):
            part = start / count
            await eventually(lambda part=part: part <= (killing.kills.total() + 1) / size.kills, 300)  # type: ignore[misc]
            some = [each.message for each in post.sent[start : start + AT_ONCE]]
            again += await publish_surely(post.publisher, some)
            post.confirmed += len(some)
            await asyncio.sleep(gap)
        return again

    async with asyncio.TaskGroup() as group:
        publishing = [group.create_task(publish(post)) for post in posts]
        group.create_task(killing.run(size.kills, every=size.every, down=size.down))
    return sum(each.result() for each in publishing)


async def nothing_waits(posts: Sequence[Post]) -> bool:
    """Whether weft holds all that was published, and something was: a kill takes messages out of its hands."""
    return all([post.confirmed and not await post.publisher.left() for post in posts])


async def let_go_of(posts: Sequence[Post]) -> None:
    """Wait until all is acknowledged: what a weft that was killed had not told Redis, the next gets after 15 s."""
    with suppress(AssertionError):  # what stays there is counted
        for post in posts:
            await eventually(lambda post=post: _is_empty(post), ACKNOWLEDGED_SECONDS)  # type: ignore[misc]


async def _is_empty(post: Post) -> bool:
    return await post.publisher.left() == 0


async def hear(report: Report, app: App, posts: Sequence[Post], killing: chaos.Chaos, size: Size) -> None:
    """Who has asked for an answer gets one, and another when the run has ended, though each is killed once more."""
    for post in posts:
        silent = await post.unanswered({"accepted", "refused"}, size.patience)
        report.expect(not silent, f"{post.publisher.name}: {len(silent)} have no answer: {silent[:3]}")
    await end_asked(app, [each for post in posts for each in post.sent])
    await killing.run(len(posts) + 1, every=(0.0, 0.3), down=size.down)
    for post in posts:
        silent = await post.unanswered({"cancelled", "refused"}, size.patience)
        report.expect(not silent, f"{post.publisher.name}: {len(silent)} were told no end: {silent[:3]}")
        report.note(f"{post.publisher.name}: {len(post.heard)} answers for {len(post.asking)} who asked")


def acknowledge_early() -> None:
    """Red control: a message is let go of before what came of it is durable."""
    from weft.intake.receiver import MessageReceiver

    take: Any = MessageReceiver._take

    async def told_early(self: MessageReceiver, messages: Any) -> Any:
        await self.inbox.done(messages)
        await asyncio.sleep(UNCOMMITTED_SECONDS)
        return await take(self, messages)

    MessageReceiver._take = told_early  # type: ignore[method-assign]


def forget_ids() -> None:
    """Red control: nobody remembers which run a task_id has made."""
    from weft.intake import intake
    from weft.intake.model import run_of

    def without_id(*arguments: Any, **named: Any) -> Any:
        return msgspec.structs.replace(run_of(*arguments, **named), idempotency_key=uuid.uuid4().hex)

    intake.run_of = without_id  # type: ignore[attr-defined]
