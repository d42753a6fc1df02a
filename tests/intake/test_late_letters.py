"""Dead letters whose run was there, and over, before they were resubmitted."""

from __future__ import annotations

import json
import uuid

from tests.cli.commanding import Hand
from tests.conftest import OpenApp
from tests.intake.ordering import body, message
from tests.intake.queues import RedisQueue
from tests.projects.making import a_version
from tests.servers import Server
from weft.app import open_intake


async def test_a_sender_hears_of_a_run_that_had_ended_before_the_dead_letter_was_mended(
    another_app: OpenApp, redis_server: Server
) -> None:
    queue = RedisQueue(redis_server, f"test-{uuid.uuid4().hex}")
    app = await another_app(intake=queue.url)
    await a_version(app, "shop")
    [(receiver, replier)] = open_intake(app, app.runs._clock)
    source = receiver.inbox.name
    ended, waiting, bad = (
        message(body("t-1"), id="m-1"),
        message(body("t-2"), id="m-2", reply_to=queue.dead),
        message(body("t-1", priority="high"), id="m-3", reply_to=queue.dead, correlation_id="c-3"),
    )
    taken = await app.intake.take(source, [ended])
    hand = await Hand.join(app)
    await hand.end(await hand.lease(), "succeeded")
    taken += await app.intake.take(source, [waiting, bad])
    assert await replier.tick() == 0
    dead_letter = taken[-1].dead_letter_id or 0
    await app.dead_letters.edit(dead_letter, body("t-1"))
    assert (await app.dead_letters.resubmit(dead_letter)).run_id == taken[0].run_id
    assert await replier.tick() == 1
    [told] = await queue.taken_from(queue.dead)
    assert told.correlation_id == "c-3"
    assert json.loads(told.body)["payload"]["run_id"] == taken[0].run_id
    await replier.close()
    await receiver.inbox.close()
    await queue.close()
