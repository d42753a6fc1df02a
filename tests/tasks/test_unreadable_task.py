"""A task that this weft does not understand stops no other."""

from __future__ import annotations

from sqlalchemy import update

from tests.conftest import SetClock
from tests.tasks.scene import keep, noop, runs_of
from weft.app import App
from weft.db import schema


async def test_a_task_that_is_not_understood_stops_no_other(app: App, clock: SetClock) -> None:
    await keep(app, noop("bad", "* * * * *"), noop("good", "* * * * *"))
    newer = update(schema.tasks).where(schema.tasks.c.name == "bad").values(definition='{"name": "bad", "newer": 1}')
    await app.db.transact(lambda tx: tx.execute(newer).rowcount)
    clock.forward(60)
    await app.scheduler.tick()
    assert len(await runs_of(app, "good")) == 1
    assert await runs_of(app, "bad") == []
