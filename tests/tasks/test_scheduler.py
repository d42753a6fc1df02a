"""The scheduler: each tick once, whoever fires it, and no more work than there is to do."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import NOON, Hand, counted, facts, fired, keep, live, noop, runs_of
from weft.app import App
from weft.clock import SECOND, seconds
from weft.errors import Invalid, NotFound
from weft.runs.model import RunState
from weft.tasks.model import UpstreamTask
from weft.tasks.schedule import Schedule, jittered
from weft.tasks.scheduler import MOST_AT_ONCE

MANY = 10_000
LOOKS = 7
"""Statements of a tick that finds nothing: who leads (at most three), what makes a read one state on a server, what is
due, what has ended, what has waited."""


async def test_a_tick_queues_one_run_that_knows_its_tick(app: App, clock: SetClock) -> None:
    await keep(app, noop("hourly", "0 * * * *", spec={"fail": "no"}, priority=7, tags=("a",), labels=("gpu",)))
    assert await app.scheduler.tick() == 0
    clock.forward(3600)
    assert await app.scheduler.tick() == 1
    (run,) = await runs_of(app, "hourly")
    assert (run.state, run.trigger, run.fire_at) == (RunState.QUEUED, "schedule", NOON + 3600 * SECOND)
    assert (run.priority, run.spec.tags, run.spec.labels, run.spec.spec) == (7, ("a",), ("gpu",), {"fail": "no"})
    assert [each.run_id for each in await facts(app, "run_queued")] == [run.id]


async def test_a_tick_that_has_fired_does_not_fire_again(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, noop("hourly", "0 * * * *"))
    for _ in range(3):
        clock.forward(3600)
        await app.scheduler.tick()
        await app.scheduler.tick()
        await hand.work()
    assert await fired(app, "hourly") == [NOON + hour * 3600 * SECOND for hour in (1, 2, 3)]


@pytest.mark.parametrize("when", ["@every 1s", "*/1 * * * *", "2026-06-01T12:00:30Z"])
async def test_five_schedulers_at_once_fire_each_tick_once(
    app: App, another_app: OpenApp, clock: SetClock, when: str
) -> None:
    """All five fire as if each led: the claim alone must keep them apart."""
    names = [f"t{number}" for number in range(20)]
    await keep(app, *(noop(name, {"when": when, "misfire": "all", "overlap": "allow"}) for name in names))
    apps = [app, *[await another_app() for _ in range(4)]]
    rounds = 3
    for _ in range(rounds):
        clock.forward(60)
        await asyncio.gather(*(each.db.transact(each.scheduler.fire_due) for each in apps for _ in range(2)))
    await app.scheduler.tick()
    expected = {"@every 1s": 60 * rounds, "*/1 * * * *": rounds}.get(when, 1)
    for name in names:
        ticks = await fired(app, name)
        assert len(ticks) == len(set(ticks)) == expected


async def test_only_one_of_five_schedulers_looks(app: App, another_app: OpenApp, clock: SetClock) -> None:
    await keep(app, noop("hourly", "0 * * * *"))
    others = [await another_app() for _ in range(4)]
    clock.forward(3600)
    assert await app.scheduler.tick() == 1
    assert [await other.scheduler.tick() for other in others] == [0, 0, 0, 0]
    assert len(await runs_of(app, "hourly")) == 1


async def test_the_next_tick_survives_a_restart(app: App, another_app: OpenApp, clock: SetClock) -> None:
    await keep(app, noop("hourly", "0 * * * *"))
    clock.forward(1800)
    again = await another_app()
    assert (await again.tasks.get("default", "hourly")).next_fire_at == NOON + 3600 * SECOND
    clock.forward(1800)
    await again.db.transact(again.scheduler.fire_due)
    assert await fired(app, "hourly") == [NOON + 3600 * SECOND]


async def test_applying_an_unchanged_schedule_keeps_the_tick_that_it_waits_for(app: App, clock: SetClock) -> None:
    await keep(app, noop("hourly", "0 * * * *"))
    clock.forward(3700)
    await keep(app, noop("hourly", "0 * * * *", description="changed, but not its schedule"))
    assert await app.scheduler.tick() == 1
    assert await fired(app, "hourly") == [NOON + 3600 * SECOND]


async def test_a_changed_schedule_acts_from_now_on(app: App, clock: SetClock) -> None:
    await keep(app, noop("often", "0 * * * *"))
    clock.forward(3700)
    await keep(app, noop("often", "*/5 * * * *"))
    assert await app.scheduler.tick() == 0
    clock.forward(200)
    await app.scheduler.tick()
    assert await fired(app, "often") == [NOON + 3900 * SECOND]


async def test_a_task_without_its_schedule_no_longer_fires(app: App, clock: SetClock) -> None:
    await keep(app, noop("hourly", "0 * * * *"))
    await keep(app, noop("hourly"))
    clock.forward(7200)
    assert await app.scheduler.tick() == 0
    assert (await app.tasks.get("default", "hourly")).next_fire_at is None


async def test_a_deleted_task_no_longer_fires(app: App, clock: SetClock) -> None:
    await keep(app, noop("hourly", "0 * * * *"))
    await app.tasks.delete("default", "hourly")
    clock.forward(7200)
    assert await app.scheduler.tick() == 0
    with pytest.raises(NotFound, match="there is no task default/hourly"):
        await app.tasks.get("default", "hourly")


async def test_a_paused_task_does_not_fire_and_goes_on_from_where_it_is_resumed(app: App, clock: SetClock) -> None:
    await keep(app, noop("hourly", {"when": "0 * * * *", "misfire": "all"}))
    await app.tasks.pause("default", "hourly")
    clock.forward(3 * 3600 + 60)
    assert await app.scheduler.tick() == 0
    resumed = await app.tasks.pause("default", "hourly", paused=False)
    assert resumed.next_fire_at == NOON + 4 * 3600 * SECOND
    assert await app.scheduler.tick() == 0
    clock.forward(3600)
    await app.scheduler.tick()
    assert await fired(app, "hourly") == [NOON + 4 * 3600 * SECOND]
    assert (await app.tasks.get("default", "hourly")).missed == 0


async def test_pausing_keeps_what_somebody_else_changed_meanwhile(app: App, another_app: OpenApp) -> None:
    """Pause is one transaction: it may not write back a definition that it read before."""
    other = await another_app()
    for number in range(5):
        await keep(app, noop("busy", "0 * * * *", priority=-1))
        changed = noop("busy", "0 * * * *", priority=number)
        await asyncio.gather(other.tasks.pause("default", "busy"), keep(app, changed))
        stored = (await app.tasks.get("default", "busy")).task
        assert stored.priority == number


async def test_a_date_fires_once_and_a_date_that_has_passed_never(app: App, clock: SetClock) -> None:
    await keep(app, noop("soon", "2026-06-01T13:00Z"), noop("past", "2026-06-01T11:59Z"))
    for _ in range(3):
        clock.forward(3600)
        await app.scheduler.tick()
    assert await fired(app, "soon") == [NOON + 3600 * SECOND]
    assert await fired(app, "past") == []
    assert (await app.tasks.get("default", "soon")).next_fire_at is None


async def test_jitter_delays_the_run_and_not_the_tick(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, noop("loose", {"when": "0 * * * *", "jitter_seconds": 600, "overlap": "allow"}))
    clock.forward(3600)
    await app.scheduler.tick()
    (run,) = await runs_of(app, "loose")
    tick = NOON + 3600 * SECOND
    start = jittered("default/loose", tick, 600)
    assert tick < start < tick + 600 * SECOND
    assert (run.fire_at, run.not_before) == (tick, start)
    assert (await app.tasks.get("default", "loose")).next_fire_at == tick + 3600 * SECOND
    clock.now = start - 1
    await app.scheduler.tick()
    assert await hand.lease() == []
    clock.now = start
    await app.scheduler.tick()
    assert [lease.run_id for lease in await hand.lease()] == [run.id]


async def test_every_delayed_run_is_woken_in_one_tick_however_many_there_are(app: App, clock: SetClock) -> None:
    many = MOST_AT_ONCE + 700
    jitter = {"when": "0 * * * *", "jitter_seconds": 60}
    await keep(app, *(noop(f"t{number}", jitter) for number in range(many)))
    clock.forward(3600)
    await app.scheduler.tick()
    clock.forward(60)
    await app.scheduler.tick()
    assert (await app.runs.counts()) == {"ready": many, "waiting": 0, "paused": 0, "running": 0}


async def test_the_loop_knows_how_long_nothing_is_due(app: App, clock: SetClock) -> None:
    assert await app.scheduler.seconds_to_next(1.0) == 1.0
    await keep(app, noop("hourly", "0 * * * *"))
    assert await app.scheduler.tick() == 0
    assert await app.scheduler.seconds_to_next(7200) == 3600
    assert await app.scheduler.seconds_to_next(1.0) == 1.0
    clock.forward(3599.5)
    assert await app.scheduler.seconds_to_next(1.0) == 0.5
    clock.forward(60)
    assert await app.scheduler.seconds_to_next(1.0) == 0.0


async def test_a_tick_that_found_work_is_followed_by_the_next_at_once(app: App, clock: SetClock) -> None:
    """What it queued may have moved what is due next; the tick that finds nothing more tells how long to wait."""
    await keep(app, noop("hourly", "0 * * * *"))
    clock.forward(3600)
    assert await app.scheduler.tick() == 1
    assert await app.scheduler.seconds_to_next(7200) == 0.0
    assert await app.scheduler.tick() == 0
    assert await app.scheduler.seconds_to_next(7200) == 3600


async def test_a_task_that_starts_by_itself_may_not_have_an_open_parameter() -> None:
    """Nobody could give it a value, and one such tick would stop all others."""
    sentence = "parameter day of default/open is None; a task that starts by itself needs a default for each"
    for fields in ({"schedule": Schedule(cron="0 * * * *")}, {"after": (UpstreamTask("other"),)}):
        with pytest.raises(Invalid, match=sentence):
            noop("open", params={"day": None}, **fields)
    assert noop("open", params={"day": None}).params == {"day": None}


async def test_many_schedules_due_at_once_take_few_transactions(app: App, clock: SetClock) -> None:
    await keep(app, *(noop(f"t{number}", "0 * * * *") for number in range(MANY)))
    clock.forward(3600)
    with counted(app) as seen:
        assert await app.scheduler.tick() == MANY
    assert (await app.runs.counts())["ready"] == MANY
    assert seen["commits"] <= MANY / MOST_AT_ONCE + 5
    assert seen["statements"] <= 20 * (MANY / MOST_AT_ONCE + 5)


async def test_an_idle_tick_costs_the_same_with_many_schedules(app: App) -> None:
    await keep(app, *(noop(f"t{number}", "0 * * * *") for number in range(MANY)))
    await app.scheduler.tick()  # the first one notes what time it is
    with counted(app) as seen:
        assert await app.scheduler.tick() == 0
    assert 0 < seen["statements"] <= LOOKS


async def test_more_late_ticks_than_one_statement_can_name_all_fire(app: App, clock: SetClock) -> None:
    tasks = 330  # 33,000 ticks, of which SQLite can name 32,766
    late = {"when": "@every 1m", "misfire": "all", "overlap": "allow", "catch_up_cap": 100}
    await keep(app, *(noop(f"t{number}", late) for number in range(tasks)))
    clock.forward(100 * 60)
    await app.scheduler.tick()
    assert (await app.runs.counts())["ready"] == tasks * 100


async def test_runs_of_one_task_come_with_their_ticks(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, noop("minutely", {"when": "* * * * *", "overlap": "allow"}))
    for _ in range(3):
        clock.forward(60)
        await app.scheduler.tick()
    stored = await app.tasks.get("default", "minutely")
    ticks = await app.tasks.ticks(stored)
    runs = await runs_of(app, "minutely")
    assert [(tick.fire_at, tick.run_id, tick.outcome) for tick in ticks[::-1]] == [
        (run.fire_at, run.id, "queued") for run in runs
    ]
    assert Counter(await live(app, "minutely")) == {"queued": 3}
    assert clock() == NOON + seconds(180)
