"""What happens to a tick while the run of an earlier one is not finished."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import NOON, Hand, facts, keep, live, noop, runs_of
from weft.app import App
from weft.clock import SECOND
from weft.runs.model import RunState

MINUTE = 60 * SECOND


async def tick_for_minutes(app: App, clock: SetClock, count: int) -> None:
    for _ in range(count):
        clock.forward(60)
        await app.scheduler.tick()


async def outcomes(app: App, name: str) -> list[str]:
    """What came of each tick, oldest first."""
    return [tick.outcome for tick in (await app.tasks.ticks(await app.tasks.get("default", name)))[::-1]]


async def test_allow_queues_every_tick_whatever_runs(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, noop("t", {"when": "* * * * *", "overlap": "allow"}))
    await tick_for_minutes(app, clock, 3)
    assert len(await hand.lease()) == 3
    await tick_for_minutes(app, clock, 2)
    assert len(await hand.lease()) == 2
    assert await live(app, "t") == ["running"] * 5


@pytest.mark.parametrize("started", [False, True])
async def test_skip_drops_ticks_until_the_run_has_ended(app: App, clock: SetClock, hand: Hand, started: bool) -> None:
    await keep(app, noop("t", {"when": "* * * * *", "overlap": "skip"}))
    await tick_for_minutes(app, clock, 1)
    leases = await hand.lease() if started else []
    await tick_for_minutes(app, clock, 2)
    assert len(await live(app, "t")) == 1
    assert [fact.data["fire_at"] for fact in await facts(app, "tick_skipped")] == [NOON + 2 * MINUTE, NOON + 3 * MINUTE]
    await hand.finish(*(leases or await hand.lease()))
    await tick_for_minutes(app, clock, 1)
    assert await live(app, "t") == ["queued"]
    assert await outcomes(app, "t") == ["queued", "skipped", "skipped", "queued"]


async def test_skip_counts_a_run_that_somebody_started_by_hand(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "* * * * *", "overlap": "skip"}))
    await app.tasks.start("default", "t")
    await tick_for_minutes(app, clock, 1)
    assert await outcomes(app, "t") == ["skipped"]


async def test_skip_is_a_matter_of_each_task_by_itself(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, noop("slow", "* * * * *"), noop("quick", "* * * * *"))
    await tick_for_minutes(app, clock, 1)
    for lease in await hand.lease():
        if lease.task == "quick":
            await hand.finish(lease)
    await tick_for_minutes(app, clock, 1)
    assert (len(await runs_of(app, "slow")), len(await runs_of(app, "quick"))) == (1, 2)


async def test_queue_one_keeps_one_waiting_behind_the_one_that_runs(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, noop("t", {"when": "* * * * *", "overlap": "queue_one"}))
    await tick_for_minutes(app, clock, 1)
    first = await hand.lease()
    await tick_for_minutes(app, clock, 3)
    assert await live(app, "t") == ["running", "queued"]
    assert await outcomes(app, "t") == ["queued", "queued", "skipped", "skipped"]
    assert await hand.lease() == []
    await hand.finish(*first)
    (second,) = await hand.lease()
    assert (await app.runs.get(second.run_id)).fire_at == NOON + 2 * MINUTE


async def test_replace_drops_the_run_that_waits(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "* * * * *", "overlap": "replace"}))
    await tick_for_minutes(app, clock, 3)
    runs = await runs_of(app, "t")
    assert [(run.state, run.reason) for run in runs] == [
        (RunState.CANCELLED, "replaced by a newer run"),
        (RunState.CANCELLED, "replaced by a newer run"),
        (RunState.QUEUED, None),
    ]


async def test_replace_asks_the_running_run_to_stop_and_starts_the_new_one_when_it_has(
    app: App, clock: SetClock, hand: Hand
) -> None:
    await keep(app, noop("t", {"when": "* * * * *", "overlap": "replace"}))
    await tick_for_minutes(app, clock, 1)
    (old,) = await hand.lease()
    await tick_for_minutes(app, clock, 1)
    assert (await hand.beat()).cancel == ((old.run_id, old.attempt),)
    assert await hand.lease() == []
    await hand.finish(old, outcome="cancelled")
    (new,) = await hand.lease()
    first, second = await runs_of(app, "t")
    assert (first.id, first.state) == (old.run_id, RunState.CANCELLED)
    assert (second.id, second.fire_at) == (new.run_id, NOON + 2 * MINUTE)


@pytest.mark.parametrize(("policy", "left"), [("allow", 5), ("skip", 1), ("queue_one", 1), ("replace", 1)])
async def test_ticks_that_come_together_overlap_too(app: App, clock: SetClock, policy: str, left: int) -> None:
    await keep(app, noop("t", {"when": "* * * * *", "overlap": policy, "misfire": "all"}))
    clock.forward(300)
    await app.scheduler.tick()
    assert len(await live(app, "t")) == left
    assert len(await outcomes(app, "t")) == 5


async def test_of_ticks_that_come_together_replace_keeps_the_newest(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, noop("t", {"when": "* * * * *", "overlap": "replace", "misfire": "all"}))
    await tick_for_minutes(app, clock, 1)
    (old,) = await hand.lease()
    clock.forward(240)
    await app.scheduler.tick()
    assert [run.fire_at for run in await runs_of(app, "t")] == [NOON + MINUTE, NOON + 5 * MINUTE]
    assert (await hand.beat()).cancel == ((old.run_id, old.attempt),)
    assert await outcomes(app, "t") == ["queued", "skipped", "skipped", "skipped", "queued"]


@pytest.mark.parametrize("database_kind", ["postgres", "mariadb"])
async def test_a_run_that_ends_while_it_is_being_replaced_harms_nobody(
    app: App, another_app: OpenApp, clock: SetClock, hand: Hand
) -> None:
    """It is seen as running and then ends in another transaction; SQLite, with its one writer, cannot show this."""
    await keep(app, noop("t", {"when": "* * * * *", "overlap": "replace"}))
    await tick_for_minutes(app, clock, 1)
    await hand.lease()
    other = await another_app()

    ended: list[int] = []

    def end_it(_conn: Any, _cursor: Any, text: str, *_: Any) -> None:
        if "FROM runs" in text and not ended:
            with app.db.engine.begin() as connection:
                end = "UPDATE runs SET state = 'succeeded', lease_worker = NULL, finished_at = 1"
                ended.append(connection.exec_driver_sql(end).rowcount)

    event.listen(other.db.engine, "after_cursor_execute", end_it)
    clock.forward(60)
    await other.db.transact(other.scheduler.fire_due)
    assert ended == [1]
    assert [run.state for run in await runs_of(app, "t")] == [RunState.SUCCEEDED, RunState.QUEUED]
