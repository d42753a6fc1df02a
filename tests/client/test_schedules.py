"""Schedules of a weft elsewhere, from Python."""

from __future__ import annotations

import pytest

from tests.tasks.scene import NOON, keep, noop
from weft.app import App
from weft.client import Client
from weft.clock import iso
from weft.errors import ChangedMeanwhile, NotFound
from weft.tasks.schedule import Schedule

YEARLY = Schedule(every_seconds=31_536_000, start_at=NOON, overlap="allow")


async def test_a_schedule_is_set_read_and_removed_from_afar(app: App, far: Client) -> None:
    await keep(app, noop("prices", project="shop"))
    given = await far.schedules.set("shop", "prices", YEARLY, seen=(1,))
    assert (given.revision, given.words, given.schedule.start_at) == (2, "every 365 days", iso(NOON))
    assert (await app.tasks.get("shop", "prices")).task.schedule == YEARLY
    assert await far.schedules.get("shop", "prices") == given
    with pytest.raises(ChangedMeanwhile):
        await far.schedules.set("shop", "prices", "@daily", seen=(1,))
    with pytest.raises(ChangedMeanwhile):
        await far.schedules.remove("shop", "prices", seen=(1,))
    assert (await far.schedules.pause("shop", "prices")).paused
    assert (await far.schedules.set("shop", "prices", "@daily", paused=False)).schedule.cron == "0 0 * * *"
    await far.schedules.remove("shop", "prices")
    with pytest.raises(NotFound, match="there is no schedule of task shop/prices"):
        await far.schedules.get("shop", "prices")


async def test_every_schedule_is_listed_from_afar(app: App, far: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.client.schedules.MOST_A_PAGE", 1)
    await keep(app, noop("a", "@yearly"), noop("b", "@every 1m"), noop("c", "@daily", paused=True), noop("d"))
    assert [each.task for each in await far.schedules.all()] == ["a", "b", "c"]
    assert [each.task for each in await far.schedules.all(sort="next_fire_at")] == ["b", "a", "c"]
    assert [each.task for each in await far.schedules.all("default", paused=False, sort="-name")] == ["b", "a"]
    assert [each.task for each in await far.schedules.all(task="c")] == ["c"]
