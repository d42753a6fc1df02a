"""Back-filling a past window: each tick that has not fired, once."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import NOON, Hand, fired, keep, noop, runs_of
from weft.app import App
from weft.clock import SECOND, iso
from weft.errors import Conflict, Invalid, NotFound

HOUR = 3600 * SECOND


async def test_a_window_is_filled_from_its_start_up_to_its_end(app: App) -> None:
    await keep(app, noop("t", "0 * * * *"))
    ids = await app.tasks.backfill("default", "t", NOON - 5 * HOUR, NOON)
    runs = await runs_of(app, "t")
    assert [run.id for run in runs] == ids
    assert [run.fire_at for run in runs] == [NOON - hour * HOUR for hour in (5, 4, 3, 2, 1)]
    assert {(run.trigger, run.state.value) for run in runs} == {("backfill", "queued")}


async def test_filling_twice_adds_nothing(app: App) -> None:
    await keep(app, noop("t", "0 * * * *"))
    first = await app.tasks.backfill("default", "t", NOON - 5 * HOUR, NOON)
    assert await app.tasks.backfill("default", "t", NOON - 5 * HOUR, NOON) == []
    wider = await app.tasks.backfill("default", "t", NOON - 7 * HOUR, NOON)
    assert (len(first), len(wider), len(await runs_of(app, "t"))) == (5, 2, 7)


async def test_filling_at_once_from_several_places_adds_each_tick_once(app: App, another_app: OpenApp) -> None:
    await keep(app, noop("t", "0 * * * *"))
    apps = [app, await another_app(), await another_app()]
    added = await asyncio.gather(*(each.tasks.backfill("default", "t", NOON - 24 * HOUR, NOON) for each in apps))
    assert sorted(map(len, added)) == [0, 0, 24]
    assert len(await runs_of(app, "t")) == 24


async def test_what_has_fired_is_not_filled_again(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, noop("t", "0 * * * *"))
    clock.forward(3600)
    await app.scheduler.tick()
    await hand.work()
    clock.forward(60)
    assert await app.tasks.backfill("default", "t", NOON + HOUR, clock()) == []


async def test_a_tick_that_was_filled_early_does_not_fire_later(
    app: App, another_app: OpenApp, clock: SetClock
) -> None:
    """The scheduler was away; a person fills the window; then both it and a second one come back."""
    await keep(app, noop("t", {"when": "*/10 * * * *", "misfire": "all", "overlap": "allow"}))
    other = await another_app()
    clock.forward(3601)
    await asyncio.gather(
        app.tasks.backfill("default", "t", NOON + 1, NOON + HOUR),
        app.db.transact(app.scheduler.fire_due),
        other.db.transact(other.scheduler.fire_due),
    )
    assert sorted(tick or 0 for tick in await fired(app, "t")) == [
        NOON + minutes * 60 * SECOND for minutes in range(10, 61, 10)
    ]


async def test_a_paused_task_can_be_filled(app: App) -> None:
    await keep(app, noop("t", "0 * * * *", paused=True))
    assert len(await app.tasks.backfill("default", "t", NOON - HOUR, NOON)) == 1


async def test_a_window_that_ends_in_the_future_is_refused(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", "0 * * * *"))
    with pytest.raises(Invalid, match=f"the end of the window is '{iso(NOON + 1000)}'; it must be in the past"):
        await app.tasks.backfill("default", "t", NOON - HOUR, NOON + 1000)


@pytest.mark.parametrize("start", [NOON, NOON + HOUR])
async def test_a_window_that_does_not_begin_before_it_ends_is_refused(app: App, start: int) -> None:
    await keep(app, noop("t", "0 * * * *"))
    with pytest.raises(Invalid, match=r"the start of the window is .*; it must be before its end"):
        await app.tasks.backfill("default", "t", start, NOON)


async def test_a_task_without_a_schedule_has_nothing_to_fill(app: App) -> None:
    await keep(app, noop("t"))
    with pytest.raises(Conflict, match="task default/t has no schedule, so there is nothing to back-fill"):
        await app.tasks.backfill("default", "t", NOON - HOUR, NOON)


async def test_an_unknown_task_is_not_filled(app: App) -> None:
    with pytest.raises(NotFound, match="there is no task default/nobody"):
        await app.tasks.backfill("default", "nobody", NOON - HOUR, NOON)


async def test_a_window_with_too_many_ticks_is_refused_whole(app: App) -> None:
    await keep(app, noop("t", "@every 1s"))
    with pytest.raises(Invalid, match="at most 10000 are back-filled at once"):
        await app.tasks.backfill("default", "t", NOON - 4 * HOUR, NOON)
    assert await runs_of(app, "t") == []
