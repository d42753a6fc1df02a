"""What follows when an attempt ends: retries, back-off, losses, and a run that ends all the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SetClock
from tests.runs.acting import Hand, events_of, facts, submit
from weft.app import App
from weft.runs.endings import judge
from weft.runs.model import Ending, Retry, RunOutcome, RunState

STEADY = {"delay_seconds": 10.0, "jitter": 0.0}

numbers = st.floats(min_value=0, max_value=1e6)
retries = st.builds(
    Retry,
    delay_seconds=st.floats(0, 86_400),
    factor=st.floats(1, 1e6),
    max_delay_seconds=st.floats(0, 2_592_000),
    jitter=st.floats(0, 1),
)


@given(retries, st.integers(0, 10_000), st.floats(0, 1))
def test_a_delay_is_never_negative_and_never_above_its_cap(retry: Retry, tries: int, chance: float) -> None:
    assert 0 <= retry.delay(tries, chance) <= retry.max_delay_seconds


def test_each_delay_is_longer_by_the_factor_up_to_the_cap() -> None:
    retry = Retry(delay_seconds=1, factor=3, max_delay_seconds=20, jitter=0)
    assert [retry.delay(tries, 0.5) for tries in range(1, 6)] == [1, 3, 9, 20, 20]


@given(st.floats(0, 1))
def test_jitter_leaves_that_part_of_the_delay_to_chance(chance: float) -> None:
    assert Retry(delay_seconds=8, jitter=0).delay(1, chance) == 8
    assert 4 <= Retry(delay_seconds=8, jitter=0.5).delay(1, chance) <= 8
    assert Retry(delay_seconds=8, jitter=1).delay(1, chance) == pytest.approx(8 * (1 - chance))


@given(
    st.sampled_from(["succeeded", "failed", "timeout", "lost", "cancelled", "released"]),
    retries,
    st.integers(0, 50),
    st.integers(0, 50),
    st.booleans(),
    st.one_of(st.none(), numbers),
)
def test_a_verdict_never_waits_once_it_has_ended_nor_revives_what_was_cancelled(
    outcome: str, retry: Retry, tries: int, losses: int, cancel: bool, retry_after: float | None
) -> None:
    ending = Ending(1, 1, outcome, retry_after_seconds=retry_after)
    verdict = judge(ending, retry=retry, tries=tries, losses=losses, cancel_requested=cancel)
    if verdict.state is not RunState.QUEUED:
        assert verdict.delay_seconds == 0
    if cancel:
        assert verdict.state in (RunState.SUCCEEDED, RunState.CANCELLED)
    assert (verdict.tries, verdict.losses) >= (tries, losses)


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
async def test_a_failed_attempt_is_tried_again_so_many_times_and_then_the_run_has_failed(
    app: App, clock: SetClock, outcome: str
) -> None:
    run_id = await submit(app, retries=2, **STEADY)
    hand = await Hand.join(app)
    for attempt in (1, 2, 3):
        assert await hand.end(await hand.lease_one(), outcome, reason=f"no {attempt}", exit_code=attempt)
        clock.forward(3600)
        await app.runs.wake_waiting()
    run = await app.runs.get(run_id)
    assert (run.state, run.outcome, run.tries, run.reason) == (RunState.FAILED, outcome, 3, "no 3")
    attempts = await app.runs.attempts(run_id)
    assert [(each.attempt, each.outcome, each.reason, each.exit_code) for each in attempts] == [
        (number, outcome, f"no {number}", number) for number in (1, 2, 3)
    ]
    assert await facts(app, run_id) == [
        "run_queued",
        *["run_started", "run_retried"] * 2,
        "run_started",
        "run_finished",
    ]


async def test_a_retry_waits_for_its_back_off(app: App, clock: SetClock) -> None:
    run_id = await submit(app, retries=5, factor=2.0, **STEADY)
    hand = await Hand.join(app)
    for delay in (10, 20, 40):
        await hand.end(await hand.lease_one(), "failed")
        run = await app.runs.get(run_id)
        assert (run.state, run.not_before) == (RunState.QUEUED, clock() + delay * 1_000_000)
        clock.forward(delay - 1)
        assert (await app.runs.wake_waiting(), await hand.lease()) == (0, [])
        clock.forward(1)
        assert await app.runs.wake_waiting() == 1


async def test_a_run_is_not_tried_again_on_an_outcome_that_was_not_named(app: App) -> None:
    run_id = await submit(app, retries=5, retry_on=("timeout",))
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), "failed")
    assert (await app.runs.get(run_id)).state is RunState.FAILED


async def test_the_other_side_may_ask_for_a_longer_wait_but_not_for_a_shorter_one(app: App, clock: SetClock) -> None:
    longer, shorter = await submit(app, retries=1, **STEADY), await submit(app, retries=1, **STEADY)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), "failed", retry_after_seconds=90.0)
    await hand.end(await hand.lease_one(), "failed", retry_after_seconds=1.0)
    assert (await app.runs.get(longer)).not_before == clock() + 90_000_000
    assert (await app.runs.get(shorter)).not_before == clock() + 10_000_000


async def test_a_released_run_spends_no_try_and_is_ready_at_once(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    for attempt in range(1, 6):
        lease = await hand.lease_one()
        assert lease.attempt == attempt
        await hand.end(lease, "released", reason="its worker was asked to stop")
    run = await app.runs.get(run_id)
    assert (run.state, run.tries, run.losses, run.attempt) == (RunState.QUEUED, 0, 0, 5)
    assert (await facts(app, run_id)).count("run_released") == 5


async def test_a_postponed_run_waits_as_long_as_the_breaker_said(app: App, clock: SetClock) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), "released", retry_after_seconds=30.0)
    run = await app.runs.get(run_id)
    assert (run.state, run.not_before, run.tries) == (RunState.QUEUED, clock() + 30_000_000, 0)


async def test_a_poison_run_has_failed_after_so_many_lost_workers(app: App) -> None:
    run_id = await submit(app, max_losses=3)
    healthy = await submit(app, project="news")
    for number in (1, 2, 3):
        hand = await Hand.join(app, f"w{number}")
        leases = {lease.run_id: lease for lease in await hand.lease()}
        if number == 1:
            await hand.end(leases[healthy])
        assert await hand.lose() == 1
    run = await app.runs.get(run_id)
    assert (run.state, run.outcome, run.losses, run.tries) == (RunState.FAILED, "lost", 3, 0)
    assert run.reason == "worker w3 went silent (3 of 3 allowed losses)"
    assert [attempt.outcome for attempt in await app.runs.attempts(run_id)] == ["lost"] * 3
    assert await (await Hand.join(app, "w4")).lease() == []


async def test_a_lost_run_starts_again_at_once_and_spends_no_try(app: App) -> None:
    run_id = await submit(app)
    lost, other = await Hand.join(app, "lost"), await Hand.join(app, "other")
    await lost.lease()
    await lost.lose()
    lease = await other.lease_one()
    assert (lease.run_id, lease.attempt) == (run_id, 2)
    await other.end(lease)
    assert (await app.runs.get(run_id)).state is RunState.SUCCEEDED


async def test_a_run_that_must_not_be_repeated_fails_with_its_worker(app: App) -> None:
    run_id = await submit(app, retries=5, retry_on=("failed",))
    hand = await Hand.join(app)
    await hand.lease()
    await hand.lose()
    run = await app.runs.get(run_id)
    assert (run.state, run.outcome, run.reason) == (
        RunState.FAILED,
        RunOutcome.LOST,
        "worker hand went silent (1 of 3 allowed losses)",
    )


async def test_the_end_of_a_run_tells_what_came_of_it(app: App, clock: SetClock) -> None:
    run_id = await submit(app, task_id=4)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    clock.forward(2)
    await hand.end(lease, "failed", reason="exit 3", exit_code=3, signal=9, result={"items": 2})
    run = await app.runs.get(run_id)
    assert (run.exit_code, run.signal, run.result, run.finished_at) == (3, 9, {"items": 2}, clock())
    (last,) = [event for event in await events_of(app, run_id) if event.kind == "run_finished"]
    assert last.data == {"state": "failed", "outcome": "failed", "reason": "exit 3"}
    assert (last.task_id, last.at) == (4, clock())


@pytest.mark.parametrize("reason", ["nul \0 byte", "lone \udcff surrogate", "x" * 200_000, "naïve 🕸"])
async def test_any_text_may_be_the_reason_of_an_end(app: App, reason: str) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    assert await hand.end(await hand.lease_one(), "failed", reason=reason)
    run = await app.runs.get(run_id)
    assert run.state is RunState.FAILED
    assert run.reason is not None
    assert run.reason[:3] == reason[:3]
