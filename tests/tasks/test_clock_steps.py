"""After a small step of the clock, as a time server makes it, each fire time fires once and none waits longer (R16)."""

from __future__ import annotations

import pytest

from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import NOON, fired, keep, noop
from weft.app import App
from weft.clock import SECOND

MINUTE = 60
EACH_MINUTE = {"interval": "@every 1m", "cron": "* * * * *"}
GOES_ON = pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])


async def pass_by(app: App, clock: SetClock, seconds: int) -> None:
    """Let the scheduler look each second."""
    for _ in range(seconds):
        clock.forward(1)
        await app.scheduler.tick()


def minutes(*numbers: int) -> list[int]:
    return [NOON + number * MINUTE * SECOND for number in numbers]


async def set_back(app: App, another_app: OpenApp, clock: SetClock, seconds: int, *, restarts: bool) -> App:
    """Set the clock back, where it ``restarts`` while no scheduler is there; return the app that goes on."""
    if not restarts:
        clock.forward(-seconds)
        return app
    await app.scheduler.resign()
    clock.forward(-seconds)
    return await another_app()


@GOES_ON
@pytest.mark.parametrize("back", [1, 3, 20])
async def test_a_tick_that_has_just_fired_does_not_fire_again_where_its_time_comes_again(
    another_app: OpenApp, clock: SetClock, back: int, restarts: bool
) -> None:
    app = await another_app()
    await keep(app, *(noop(name, {"when": when, "overlap": "allow"}) for name, when in EACH_MINUTE.items()))
    clock.forward(MINUTE - 5)
    await pass_by(app, clock, 6)
    app = await set_back(app, another_app, clock, back, restarts=restarts)
    await pass_by(app, clock, MINUTE + back - 1)
    for name in EACH_MINUTE:
        assert await fired(app, name) == minutes(1, 2)


@GOES_ON
@pytest.mark.parametrize("back", [2, 5, 8, 30, 55, 150])
async def test_an_interval_goes_on_half_to_one_and_a_half_of_it_after_its_last_tick(
    another_app: OpenApp, clock: SetClock, back: int, restarts: bool
) -> None:
    app = await another_app()
    await keep(app, noop("t", {"when": "@every 10s", "overlap": "allow", "misfire": "skip"}))
    clock.forward(3 * MINUTE)
    await app.scheduler.tick()
    await pass_by(app, clock, 3)
    before = len(await fired(app, "t"))
    app = await set_back(app, another_app, clock, back, restarts=restarts)
    gaps: list[int] = []
    elapsed = 3
    for _ in range(40):
        await pass_by(app, clock, 1)
        elapsed += 1
        if len(await fired(app, "t")) > before + len(gaps):
            gaps.append(elapsed)
            elapsed = 0
    assert 5 <= gaps[0] <= 15
    assert gaps[1:] == [10] * len(gaps[1:])
    assert len(gaps) >= 3
    ticks = await fired(app, "t")
    assert len(ticks) == len(set(ticks))


@pytest.mark.parametrize("ahead", [1, 3, 20, 50])
async def test_a_tick_that_a_step_forward_leaves_out_fires_once(app: App, clock: SetClock, ahead: int) -> None:
    await keep(app, *(noop(name, {"when": when, "overlap": "allow"}) for name, when in EACH_MINUTE.items()))
    clock.forward(MINUTE - 2)
    await pass_by(app, clock, 1)
    clock.forward(ahead)
    await pass_by(app, clock, MINUTE + 1 - ahead)
    for name in EACH_MINUTE:
        assert await fired(app, name) == minutes(1, 2)


async def test_a_clock_that_is_corrected_again_and_again_fires_each_minute_once(app: App, clock: SetClock) -> None:
    await keep(app, *(noop(name, {"when": when, "overlap": "allow"}) for name, when in EACH_MINUTE.items()))
    for step in (4, -3, 12, -12, 25, -20, -6, 1, -2, 1) * 2:
        await pass_by(app, clock, 29)
        clock.forward(step)
    await app.scheduler.tick()
    past = (clock() - NOON) // (MINUTE * SECOND)
    for name in EACH_MINUTE:
        assert await fired(app, name) == minutes(*range(1, past + 1))


async def test_who_takes_over_lets_no_schedule_wait_as_long_as_the_clock_of_the_last_leader_was_ahead(
    another_app: OpenApp, clock: SetClock
) -> None:
    app, ahead = await another_app(), 45
    clock.forward(ahead)
    await app.scheduler.tick()
    await keep(app, noop("often", "@every 5s"), noop("minutely", "* * * * *"))
    app = await set_back(app, another_app, clock, ahead, restarts=True)
    await pass_by(app, clock, MINUTE)
    assert (await fired(app, "often"))[0] == NOON + 5 * SECOND
    assert await fired(app, "minutely") == minutes(1)
