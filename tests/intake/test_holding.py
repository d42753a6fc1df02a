"""What a receiver holds while its server takes messages but nothing else."""

from __future__ import annotations

import uuid
from typing import Any

import aiormq
import pytest

from tests.conftest import OpenApp, on_sqlite
from tests.intake.ordering import body
from tests.intake.queues import RabbitQueue
from tests.projects.making import a_version
from tests.servers import Server
from tests.waiting import eventually
from weft.app import open_intake
from weft.intake import receiver as receiving
from weft.tasks.model import ProjectSettings

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
    await app.tasks.configure("shop", ProjectSettings(max_queued=1))
    somebody = await aiormq.connect(rabbitmq_server.url)
    channel = await somebody.channel()
    narrow: Any = {"x-max-length": PREFETCH, "x-overflow": "reject-publish"}
    await channel.queue_declare(queue.name, durable=True, arguments=narrow)

    async def put(first: int) -> None:
        for number in range(first, first + PREFETCH):
            await channel.basic_publish(body(f"t-{number}"), routing_key=queue.name)

    await put(0)
    while receiver.fault is not None:
        await receiver.tick()
    await put(PREFETCH)  # where there is no room now for what is put back

    async def fails() -> bool:
        await receiver.tick()
        return receiver.fault is not None

    for _ in range(3):
        await eventually(fails, timeout=30)
    assert caplog.messages.count("inbox does not answer") == 1
    await app.tasks.configure("shop", ProjectSettings(max_queued=100))

    async def is_through() -> bool:
        is_empty = not await receiver.tick() and receiver.fault is None
        return is_empty and sum((await app.runs.counts()).values()) == 2 * PREFETCH

    await eventually(is_through, timeout=60)
    await receiver.inbox.close()
    assert (await channel.queue_declare(queue.name, passive=True)).message_count == 0
    await somebody.close()
