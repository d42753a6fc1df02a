"""What has happened lately is counted from events, whether they came before somebody asked or after."""

from __future__ import annotations

from functools import partial

import pytest

from tests.conftest import SetClock
from tests.items.scene import start
from tests.runs.acting import Hand, submit
from weft import events
from weft.app import App
from weft.clock import seconds
from weft.events import Fact
from weft.items import activity
from weft.items.activity import DAY_STEP, HOUR_STEP, Activity


async def seen(app: App, clock: SetClock) -> Activity:
    """By somebody who asks for the first time."""
    found = Activity(app.db, clock)
    await found.catch_up()
    return found


async def test_runs_that_end_are_counted_in_their_minute_by_state(app: App, clock: SetClock) -> None:
    hand, early = await Hand.join(app), await seen(app, clock)
    for outcome, count in (("succeeded", 2), ("failed", 1), ("oom", 1)):
        for _ in range(count):
            await submit(app, project="a" if outcome == "succeeded" else "b")
            await hand.end(await hand.lease_one(), outcome)
        clock.forward(60)
    await early.catch_up()
    for found in (early, await seen(app, clock)):
        hour = found.series(HOUR_STEP)
        assert (hour.succeeded[-4:], hour.failed[-4:]) == ([2, 0, 0, 0], [0, 1, 1, 0])
        assert sum(found.series(DAY_STEP).failed) == 2
        assert sum(found.series(HOUR_STEP, {"a"}).failed) == 0


async def test_items_are_counted_when_they_come_and_none_twice(app: App, clock: SetClock) -> None:
    early = await seen(app, clock)
    spider = await start(app)
    await spider.yields({"n": 1}, {"n": 2})
    await early.catch_up()
    clock.forward(60)
    await spider.yields({"n": 3})
    midway = await seen(app, clock)
    clock.forward(60)
    await spider.yields({"n": 4}, {"n": 5})
    await spider.hand.end(spider.lease)
    late = await seen(app, clock)
    for found, counts in ((early, [2, 1, 2]), (midway, [0, 0, 2]), (late, [0, 0, 5])):
        await found.catch_up()
        assert found.series(HOUR_STEP).items[-3:] == counts


async def test_a_retried_run_counts_its_items_as_they_come(app: App, clock: SetClock) -> None:
    early = await seen(app, clock)
    spider = await start(app, retries=1, delay_seconds=0.0)
    await spider.yields({"n": 1}, {"n": 2})
    await spider.hand.end(spider.lease, "failed")
    await app.runs.wake_waiting()
    again = await spider.hand.lease_one()
    await spider.hand.end(again)
    late = await seen(app, clock)
    await early.catch_up()
    assert [sum(found.series(HOUR_STEP).items) for found in (early, late)] == [2, 2]


async def test_what_is_too_much_is_read_piece_by_piece(
    app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "PIECE", 4)
    monkeypatch.setattr(activity, "FIRST_PIECES", 1)
    monkeypatch.setattr(activity, "LOOK_BACK_SECONDS", 0.0)
    monkeypatch.setattr(activity, "MOST_READ", 8)
    hand = await Hand.join(app)
    for _ in range(10):
        await submit(app)
        await hand.end(await hand.lease_one())
        clock.forward(1)
    found = Activity(app.db, clock)
    counted = []
    for _ in range(4):
        await found.catch_up()
        counted.append(sum(found.series(DAY_STEP).succeeded))
    assert counted[0] < counted[1] == counted[3] < 10
    assert clock() - seconds(11) < found.known_since < clock()


async def test_what_was_before_is_known_however_late_somebody_asks(app: App, clock: SetClock) -> None:
    found, hand = Activity(app.db, clock), await Hand.join(app)
    clock.forward(3 * 86_400)
    await submit(app)
    await hand.end(await hand.lease_one())
    await found.catch_up()
    assert sum(found.series(HOUR_STEP).succeeded) == 1


async def test_who_is_far_behind_begins_anew(app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "MOST_BEHIND", 5)
    found, hand = await seen(app, clock), await Hand.join(app)
    for _ in range(5):
        await submit(app)
        await hand.end(await hand.lease_one())
    await found.catch_up()
    assert sum(found.series(HOUR_STEP).succeeded) == 5


async def test_what_is_worth_a_look_is_told_for_a_day(app: App, clock: SetClock) -> None:
    early = await seen(app, clock)
    for project in ("a", "b"):
        facts = [Fact("ticks_missed", project, None, 1, {"count": 2}), Fact("task_changed", project, None, 1)]
        await app.db.transact(partial(events.append, facts=facts, at=clock()))
    for found in (early, await seen(app, clock)):
        await found.catch_up()
        assert [(each.kind, each.project) for each in found.notable()] == [("ticks_missed", "b"), ("ticks_missed", "a")]
        assert [each.project for each in found.notable({"a"})] == ["a"]
    clock.forward(86_401)
    assert early.notable() == []
