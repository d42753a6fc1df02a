"""After an outage, and after a jump of the clock, exactly the ticks fire that the policy allows (R16, R17)."""

from __future__ import annotations

import pytest

from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import NOON, facts, fired, keep, noop
from weft.app import App
from weft.clock import SECOND

MINUTE, HOUR, DAY = 60, 3600, 86_400
EVERY = {"every 1s": "@every 1s", "every 1m": "@every 1m", "hourly": "0 * * * *"}


@pytest.mark.parametrize(
    ("outage", "when", "misfire", "run", "missed"),
    [
        # Late by less than the grace of a minute is not a misfire: all fire.
        (10, "every 1s", "skip", 10, 0),
        (10, "every 1s", "once", 10, 0),
        (10, "every 1s", "all", 10, 0),
        (10, "every 1m", "skip", 0, 0),
        # 600 ticks of a second: the newest 60 are within the grace; all are held to the cap of 100.
        (10 * MINUTE, "every 1s", "skip", 60, 540),
        (10 * MINUTE, "every 1s", "once", 60, 540),
        (10 * MINUTE, "every 1s", "all", 100, 500),
        (10 * MINUTE, "every 1m", "skip", 1, 9),
        (10 * MINUTE, "every 1m", "once", 1, 9),
        (10 * MINUTE, "every 1m", "all", 10, 0),
        (3 * DAY, "every 1s", "skip", 60, 3 * DAY - 60),
        (3 * DAY, "every 1s", "once", 60, 3 * DAY - 60),
        (3 * DAY, "every 1s", "all", 100, 3 * DAY - 100),
        # 72 hourly ticks: catch-up reaches back a day, to the tick exactly a day ago.
        (3 * DAY, "hourly", "skip", 1, 71),
        (3 * DAY, "hourly", "once", 1, 71),
        (3 * DAY, "hourly", "all", 25, 47),
        (3 * DAY + 90, "hourly", "skip", 0, 72),
        (3 * DAY + 90, "hourly", "once", 1, 71),
        (3 * DAY + 90, "hourly", "all", 24, 48),
    ],
)
async def test_after_an_outage_so_many_run_and_so_many_are_missed(
    app: App, clock: SetClock, outage: int, when: str, misfire: str, run: int, missed: int
) -> None:
    await keep(app, noop("t", {"when": EVERY[when], "misfire": misfire, "overlap": "allow"}))
    clock.forward(outage)
    await app.scheduler.tick()
    ticks = await fired(app, "t")
    assert len(ticks) == len(set(ticks)) == run
    assert (await app.tasks.get("default", "t")).missed == missed
    assert sum(fact.data["count"] for fact in await facts(app, "ticks_missed")) == missed
    assert len(await facts(app, "ticks_missed")) == (1 if missed else 0)


async def test_the_event_tells_which_ticks_were_missed(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "0 * * * *", "misfire": "skip"}))
    clock.forward(5 * HOUR + 120)
    await app.scheduler.tick()
    (fact,) = await facts(app, "ticks_missed")
    assert fact.task_id == (await app.tasks.get("default", "t")).id
    assert fact.data == {"count": 5, "first": NOON + HOUR * SECOND, "last": NOON + 5 * HOUR * SECOND}


async def test_the_missed_are_added_up_over_outages(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "0 * * * *", "misfire": "skip"}))
    for _ in range(3):
        clock.forward(2 * HOUR)
        clock.now += 120 * SECOND
        await app.scheduler.tick()
    assert (await app.tasks.get("default", "t")).missed == 6


async def test_missed_ticks_can_be_filled_in_later(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "0 * * * *", "misfire": "skip"}))
    clock.forward(5 * HOUR + 120)
    await app.scheduler.tick()
    assert await fired(app, "t") == []
    await app.tasks.backfill("default", "t", NOON + 1, clock())
    assert await fired(app, "t") == [NOON + hour * HOUR * SECOND for hour in range(1, 6)]


@pytest.mark.parametrize("back", [1, 30, HOUR, 3 * HOUR, 40 * DAY])
async def test_a_clock_set_back_fires_nothing_twice(app: App, clock: SetClock, back: int) -> None:
    await keep(app, noop("t", {"when": "*/10 * * * *", "overlap": "allow"}))
    for _ in range(6):
        clock.forward(600)
        await app.scheduler.tick()
    clock.forward(-back)
    while clock() < NOON + 2 * HOUR * SECOND:
        await app.scheduler.tick()
        clock.forward(max(600, back // 100))
    await app.scheduler.tick()
    ticks = [tick for tick in await fired(app, "t") if tick is not None]
    assert ticks == sorted(set(ticks))
    assert [tick for tick in ticks if tick <= NOON + HOUR * SECOND] == [
        NOON + minutes * MINUTE * SECOND for minutes in range(10, 61, 10)
    ]


@pytest.mark.parametrize(
    ("forward", "misfire", "run"),
    [
        (1, "all", 0),
        (3 * HOUR, "all", 18),
        (3 * HOUR, "once", 1),
        (40 * DAY, "all", 100),
        (40 * DAY, "once", 1),
        (40 * DAY, "skip", 1),
        (40 * DAY + 5 * MINUTE, "skip", 0),
    ],
)
async def test_a_clock_set_forward_applies_the_policy(
    app: App, clock: SetClock, forward: int, misfire: str, run: int
) -> None:
    await keep(app, noop("t", {"when": "*/10 * * * *", "overlap": "allow", "misfire": misfire}))
    clock.forward(forward)
    await app.scheduler.tick()
    assert len(await fired(app, "t")) == run


async def test_a_clock_set_forward_by_mistake_and_back_fires_no_tick_twice(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "*/10 * * * *", "overlap": "allow", "misfire": "all"}))
    for step in (3 * HOUR, -3 * HOUR, 2 * HOUR, 2 * HOUR):
        clock.forward(step)
        await app.scheduler.tick()
    ticks = await fired(app, "t")
    assert ticks == [NOON + minutes * MINUTE * SECOND for minutes in range(10, 241, 10)]


async def test_the_grace_is_a_setting(another_app: OpenApp, clock: SetClock) -> None:
    strict = await another_app(misfire_grace_seconds=0)
    await keep(strict, noop("t", {"when": "0 * * * *", "misfire": "skip"}))
    clock.now = NOON + HOUR * SECOND + 1
    await strict.scheduler.tick()
    assert await fired(strict, "t") == []
    assert (await strict.tasks.get("default", "t")).missed == 1
