"""What a receiver holds while its server takes messages but nothing else."""

from __future__ import annotations

import uuid

import aiormq
import pytest

from tests.conftest import OpenApp, on_sqlite
from tests.intake.ordering import body
from tests.intake.queues import Put, RabbitQueue
from tests.projects.making import a_version
from tests.servers import Server
from tests.waiting import eventually
from weft.app import open_intake
from weft.intake import receiver as receiving
from weft.intake.letter import Wanted

PREFETCH = 3

pytestmark = on_sqlite


async def test_what_could_not_be_let_go_of_comes_again_and_leaves_place_for_others(
    another_app: OpenApp, rabbitmq_server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(receiving, "LISTEN_SECONDS", 0.2)
    queue = RabbitQueue(rabbitmq_server, f"test-{uuid.uuid4().hex}")
    app = await another_app(intake=queue.url, intake_prefetch=PREFETCH)
    await a_version(app, "shop")
    [(receiver, _)] = open_intake(app)
    somebody = await aiormq.connect(rabbitmq_server.url)
    await (await somebody.channel()).queue_declare(queue.dead, exclusive=True)
    await queue.put(*(Put(b"bad %d" % number) for number in range(2 * PREFETCH)))

    async def fails() -> bool:
        await receiver.tick()
        return receiver.fault is not None

    for _ in range(3):
        await eventually(fails, timeout=30)
    assert caplog.messages.count("inbox does not answer") == 1
    await somebody.close()
    await queue.put(Put(body("good")))

    async def is_through() -> bool:
        await receiver.tick()
        return len(await app.letters.find(Wanted())) == 2 * PREFETCH and sum((await app.runs.counts()).values()) == 1

    await eventually(is_through, timeout=60)
    await receiver.inbox.close()
    assert await queue.left() == 0
    await queue.close()
