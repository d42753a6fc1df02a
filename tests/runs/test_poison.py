"""Which of the runs that lose their workers together is the poison."""

from __future__ import annotations

from tests.conftest import SetClock
from tests.runs.acting import Hand, submit_many
from weft.app import App
from weft.clock import Moment, seconds
from weft.runs.endings import MERCY, MOST_APART, SECONDS_APART
from weft.runs.model import RunState


async def lose_all_that_is_ready(app: App, times: int) -> None:
    for number in range(times):
        hand = await Hand.join(app, f"w{number}")
        await hand.lease()
        await hand.lose()


async def test_runs_that_are_lost_together_again_come_back_one_by_one(app: App, clock: SetClock) -> None:
    run_ids = await submit_many(app, 20)
    await lose_all_that_is_ready(app, 2)
    waits = [((await app.runs.get(run_id)).not_before or clock()) - clock() for run_id in run_ids]
    assert waits == [moment(place * SECONDS_APART) for place in range(20)]


async def test_runs_that_met_again_come_back_farther_apart(app: App, clock: SetClock) -> None:
    run_ids = await submit_many(app, 4)
    await lose_all_that_is_ready(app, 2)
    clock.forward(MOST_APART)
    await app.runs.wake_waiting()
    await lose_all_that_is_ready(app, 1)
    waits = [((await app.runs.get(run_id)).not_before or clock()) - clock() for run_id in run_ids]
    assert waits == [moment(2 * place * SECONDS_APART) for place in range(4)]


def moment(count: float) -> Moment:
    return seconds(min(count, MOST_APART))


async def test_a_run_that_kills_its_workers_fails_and_those_that_were_lost_with_it_do_not(
    app: App, clock: SetClock
) -> None:
    killer, *others = await submit_many(app, 5)
    await lose_all_that_is_ready(app, 2)
    hand = await Hand.join(app, "third")
    assert [lease.run_id for lease in await hand.lease()] == [killer]
    await hand.lose()
    assert (await app.runs.get(killer)).state is RunState.FAILED
    clock.forward(MOST_APART)
    await app.runs.wake_waiting()
    assert sorted(lease.run_id for lease in await (await Hand.join(app)).lease()) == others


async def test_a_run_with_more_losses_than_its_companions_is_the_poison(app: App) -> None:
    (killer,) = await submit_many(app, 1)
    await lose_all_that_is_ready(app, 2)
    others = await submit_many(app, 3)
    await lose_all_that_is_ready(app, 1)
    states = [(await app.runs.get(run_id)).state for run_id in (killer, *others)]
    assert states == [RunState.FAILED, *[RunState.QUEUED] * 3]


async def test_of_runs_that_are_always_lost_together_none_fails_before_its_mercy_is_over(
    app: App, clock: SetClock
) -> None:
    run_ids = await submit_many(app, 3, max_losses=2)
    for losses in range(1, 2 * MERCY + 1):
        assert {(await app.runs.get(run_id)).state for run_id in run_ids} == {RunState.QUEUED}
        clock.forward(MOST_APART)
        await app.runs.wake_waiting()
        await lose_all_that_is_ready(app, 1)
        assert {(await app.runs.get(run_id)).losses for run_id in run_ids} == {losses}
    assert {(await app.runs.get(run_id)).state for run_id in run_ids} == {RunState.FAILED}
