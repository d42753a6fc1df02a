"""Submits: one run for one request, all of a batch or none of it, and no more than a project may have waiting."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import OpenApp, SetClock
from tests.runs.acting import Hand, all_runs, facts, new_run, rows_of, set_project, submit, submit_many
from weft.app import App
from weft.db import schema
from weft.db.database import Transaction
from weft.errors import Conflict, NotFound, QueueFull
from weft.runs.model import RunState


async def test_a_submitted_run_is_queued_and_its_fact_is_written(app: App) -> None:
    run_id = await submit(app, priority=7, spec={"sleep_seconds": 1}, params={"page": 2})
    run = await app.runs.get(run_id)
    assert (run.state, run.attempt, run.priority) == (RunState.QUEUED, 0, 7)
    assert (run.spec.spec, run.spec.params) == ({"sleep_seconds": 1}, {"page": 2})
    assert await facts(app, run_id) == ["run_queued"]


async def test_a_run_that_does_not_exist_is_not_found(app: App) -> None:
    with pytest.raises(NotFound, match="there is no run 77"):
        await app.runs.get(77)


async def test_the_same_key_and_body_give_the_same_run(app: App) -> None:
    (first,) = await app.runs.submit([new_run(idempotency_key="k")])
    (again,) = await app.runs.submit([new_run(idempotency_key="k")])
    assert (first.fresh, again.fresh) == (True, False)
    assert again.run_id == first.run_id
    assert len(await all_runs(app)) == 1


@pytest.mark.parametrize("other", [{"task": "stock"}, {"priority": 1}, {"kind": "shell"}, {"params": {"a": 1}}])
async def test_the_same_key_with_another_body_is_refused(app: App, other: dict[str, object]) -> None:
    await submit(app, idempotency_key="k")
    with pytest.raises(Conflict, match="k was used before for another request"):
        await submit(app, idempotency_key="k", **other)
    assert len(await all_runs(app)) == 1


async def test_a_key_belongs_to_its_project(app: App) -> None:
    assert await submit(app, idempotency_key="k") != await submit(app, idempotency_key="k", project="news")


async def test_a_key_is_remembered_after_its_run_has_ended(app: App) -> None:
    run_id = await submit(app, idempotency_key="k")
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one())
    assert await submit(app, idempotency_key="k") == run_id


async def test_concurrent_submits_with_one_key_make_one_run(app: App, another_app: OpenApp) -> None:
    apps = [app, await another_app()]
    submits = [apps[n % 2].runs.submit([new_run(idempotency_key=f"k{n // 8}")]) for n in range(80)]
    answers = [answer for batch in await asyncio.gather(*submits) for answer in batch]
    assert len({answer.run_id for answer in answers}) == 10
    assert sum(answer.fresh for answer in answers) == 10
    assert len(await all_runs(app)) == 10


async def test_one_key_twice_in_a_batch_makes_one_run(app: App) -> None:
    first, second = await app.runs.submit([new_run(idempotency_key="k"), new_run(idempotency_key="k")])
    assert second.run_id == first.run_id
    assert (first.fresh, second.fresh) == (True, False)
    assert len(await all_runs(app)) == 1


async def test_one_key_for_two_bodies_in_a_batch_is_refused(app: App) -> None:
    with pytest.raises(Conflict):
        await app.runs.submit([new_run(idempotency_key="k"), new_run(idempotency_key="k", priority=1)])
    assert await all_runs(app) == []


async def test_a_batch_is_queued_whole_or_not_at_all(app: App) -> None:
    await submit(app, idempotency_key="k")
    before = await rows_of(app, schema.events)
    with pytest.raises(Conflict):
        await app.runs.submit([new_run(), new_run(idempotency_key="k", priority=1), new_run()])
    assert len(await all_runs(app)) == 1
    assert await rows_of(app, schema.events) == before


async def test_a_batch_answers_in_its_own_order(app: App) -> None:
    old = await submit(app, idempotency_key="old")
    answers = await app.runs.submit([new_run(task="a"), new_run(idempotency_key="old"), new_run(task="b")])
    assert [answer.fresh for answer in answers] == [True, False, True]
    assert answers[1].run_id == old
    names = [(await app.runs.get(answer.run_id)).task for answer in answers]
    assert names == ["a", "prices", "b"]


async def test_a_pending_target_is_not_queued_twice(app: App) -> None:
    run_id = await submit(app, dedup_key="page")
    assert await submit(app, dedup_key="page") == run_id
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    assert await submit(app, dedup_key="page") == run_id
    await hand.end(lease)
    assert await submit(app, dedup_key="page") != run_id


async def test_a_target_stays_done_for_its_window(app: App, clock: SetClock) -> None:
    run_id = await submit(app, dedup_key="page", dedup_seconds=60)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one())
    clock.forward(59)
    assert await submit(app, dedup_key="page", dedup_seconds=60) == run_id
    clock.forward(2)
    assert await submit(app, dedup_key="page", dedup_seconds=60) != run_id


async def test_a_target_twice_in_a_batch_makes_one_run(app: App) -> None:
    answers = await app.runs.submit([new_run(dedup_key="page"), new_run(dedup_key="page"), new_run(dedup_key="other")])
    assert [answer.fresh for answer in answers] == [True, False, True]
    assert answers[1].run_id == answers[0].run_id
    assert len(await all_runs(app)) == 2


async def test_targets_of_two_projects_in_a_batch_stay_apart(app: App) -> None:
    shop, news, again = await app.runs.submit(
        [
            new_run(dedup_key="page"),
            new_run(dedup_key="page", project="news"),
            new_run(dedup_key="page", project="news"),
        ]
    )
    assert shop.run_id != news.run_id
    assert again.run_id == news.run_id


async def test_concurrent_submits_of_one_target_make_one_run(app: App, another_app: OpenApp) -> None:
    apps = [app, await another_app()]
    answers = await asyncio.gather(*(apps[n % 2].runs.submit([new_run(dedup_key="page")]) for n in range(40)))
    assert len({batch[0].run_id for batch in answers}) == 1
    assert len(await all_runs(app)) == 1


async def test_a_full_project_refuses_a_submit_and_says_when_to_return(app: App) -> None:
    await set_project(app, "shop", max_queued=3)
    await submit_many(app, 3)
    with pytest.raises(QueueFull, match="project shop has 3 runs waiting, which is its limit") as refused:
        await submit(app)
    assert refused.value.retry_after_seconds > 0
    assert len(await all_runs(app)) == 3


async def test_a_full_project_does_not_concern_another(app: App) -> None:
    await set_project(app, "shop", max_queued=1)
    await submit(app)
    assert await submit(app, project="news")


async def test_a_batch_that_would_overfill_a_project_is_refused_whole(app: App) -> None:
    await set_project(app, "shop", max_queued=3)
    with pytest.raises(QueueFull):
        await submit_many(app, 4)
    assert await all_runs(app) == []
    assert len(await submit_many(app, 3)) == 3


async def test_a_retried_submit_finds_its_answer_though_the_project_is_full(app: App) -> None:
    await set_project(app, "shop", max_queued=1)
    run_id = await submit(app, idempotency_key="k")
    assert await submit(app, idempotency_key="k") == run_id


async def test_a_full_project_takes_runs_again_once_some_were_leased(app: App) -> None:
    await set_project(app, "shop", max_queued=2)
    await submit_many(app, 2)
    hand = await Hand.join(app)
    await hand.lease(2)
    assert len(await submit_many(app, 2)) == 2


async def test_a_submit_that_was_rolled_back_does_not_count_as_waiting(app: App) -> None:
    await set_project(app, "shop", max_queued=2)

    def fail(tx: Transaction) -> None:
        app.runs.admit(tx, [new_run(), new_run()])
        raise KeyError("rolled back")

    with pytest.raises(KeyError):
        await app.db.transact(fail)
    assert len(await submit_many(app, 2)) == 2


async def test_a_run_that_is_to_wait_is_not_ready_before_its_time(app: App, clock: SetClock) -> None:
    run_id = await submit(app, not_before=clock() + 10_000_000)
    hand = await Hand.join(app)
    assert (await app.runs.wake_waiting(), await hand.lease()) == (0, [])
    clock.forward(10)
    assert await app.runs.wake_waiting() == 1
    assert (await hand.lease_one()).run_id == run_id


async def test_a_skipped_run_is_kept_as_cancelled_and_never_leased(app: App) -> None:
    run_id = await submit(app, skipped="its upstream task failed")
    run = await app.runs.get(run_id)
    assert (run.state, run.outcome, run.reason) == (RunState.CANCELLED, "skipped", "its upstream task failed")
    assert await (await Hand.join(app)).lease() == []
    assert await facts(app, run_id) == ["run_finished"]


async def test_every_run_has_a_trace_of_its_own_and_keeps_the_one_it_was_given(app: App) -> None:
    first, second = [await app.runs.get(run_id) for run_id in await submit_many(app, 2)]
    assert first.traceparent != second.traceparent
    assert len(first.traceparent) == 55
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    kept = await app.runs.get(await submit(app, correlation_id="order-9", traceparent=given))
    assert (kept.correlation_id, kept.traceparent) == ("order-9", given)


async def test_an_ended_run_may_be_queued_again_as_a_new_one(app: App) -> None:
    run_id = await submit(app, priority=3, params={"page": 2}, task_id=4)
    with pytest.raises(Conflict, match="has not ended yet"):
        await app.runs.again(run_id)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), "failed")
    before = await app.runs.get(run_id)
    again = await app.runs.get((await app.runs.again(run_id)).run_id)
    assert again.id != run_id
    assert (again.spec, again.priority, again.task_id, again.trigger) == (before.spec, 3, 4, "retry")
    assert await app.runs.get(run_id) == before
