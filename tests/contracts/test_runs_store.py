"""What every database promises about runs: fenced writes, states that keep to the graph, a history that stays."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.conftest import OpenApp, SetClock
from tests.runs.acting import Hand, events_of, facts, in_use, rows_of, set_limit, submit, submit_many
from weft.app import App
from weft.db import schema
from weft.errors import Conflict, Invalid, LeaseLost
from weft.runs.lanes import project_limit
from weft.runs.model import ENDED, TRANSITIONS, UNLEASED, Ending, RunState

RESUMABLE = {"spider": "quotes", "resumable": True}


async def everything(app: App) -> dict[str, object]:
    """All rows that a write of a worker could change."""
    tables = (schema.runs, schema.attempts, schema.events, schema.limits, schema.log_chunks, schema.inbox)
    return {table.name: await rows_of(app, table) for table in tables}


async def test_a_stale_attempt_can_end_nothing_and_changes_nothing(app: App) -> None:
    await set_limit(app, project_limit("shop"), 1)
    run_id = await submit(app)
    zombie, other = await Hand.join(app, "zombie"), await Hand.join(app, "other")
    old = await zombie.lease_one()
    await zombie.lose()
    new = await other.lease_one()
    before = await everything(app)
    for outcome in ("succeeded", "failed", "timeout", "cancelled", "released"):
        assert not await zombie.end(old, outcome)
        assert not await other.end(old, outcome)
    with pytest.raises(LeaseLost):
        await zombie.ship(old, b"late words")
    assert await everything(app) == before
    assert await other.end(new)
    assert (await app.runs.get(run_id)).attempt == 2


async def test_an_attempt_of_the_same_worker_is_fenced_by_its_number(app: App) -> None:
    await submit(app)
    hand = await Hand.join(app)
    old = await hand.lease_one()
    await hand.end(old, "released")
    new = await hand.lease_one()
    before = await everything(app)
    assert not await hand.end(old, "failed")
    with pytest.raises(LeaseLost):
        await hand.ship(old, b"late words")
    assert await everything(app) == before
    assert await hand.end(new)


async def test_a_worker_cannot_end_what_another_holds(app: App) -> None:
    await submit(app)
    owner, other = await Hand.join(app, "owner"), await Hand.join(app, "other")
    lease = await owner.lease_one()
    before = await everything(app)
    assert not await other.end(lease)
    with pytest.raises(LeaseLost):
        await other.ship(lease, b"not mine")
    assert await everything(app) == before


async def test_an_ending_that_is_told_twice_counts_once(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    assert await hand.end(lease)
    before = await everything(app)
    assert not await hand.end(lease)
    assert await everything(app) == before
    assert await facts(app, run_id) == ["run_queued", "run_started", "run_finished"]


async def test_an_ending_twice_in_one_call_counts_once(app: App) -> None:
    first, second = await submit_many(app, 2)
    hand = await Hand.join(app)
    leases = await hand.lease()
    assert await hand.end_all([*leases, leases[0]]) == [True, True, True]
    assert [len(await app.runs.attempts(run_id)) for run_id in (first, second)] == [1, 1]


async def test_of_two_different_endings_in_one_call_the_first_counts(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    await hand.lease()
    await app.protocol.finish(hand.id, [Ending(run_id, 1, "succeeded"), Ending(run_id, 1, "failed")])
    assert (await app.runs.get(run_id)).state is RunState.SUCCEEDED


@pytest.mark.parametrize("outcome", ["lost", "skipped", "done", ""])
async def test_an_outcome_that_is_not_a_worker_s_to_tell_is_refused_and_changes_nothing(app: App, outcome: str) -> None:
    await submit_many(app, 2)
    hand = await Hand.join(app)
    first, second = await hand.lease()
    before = await everything(app)
    with pytest.raises(Invalid, match=r"outcome is .*; it must be one of"):
        await app.protocol.finish(hand.id, [Ending(first.run_id, 1, "succeeded"), Ending(second.run_id, 1, outcome)])
    assert await everything(app) == before


async def test_a_batch_of_endings_is_answered_one_by_one(app: App) -> None:
    await submit_many(app, 4)
    hand = await Hand.join(app)
    leases = await hand.lease()
    await hand.end(leases[1])
    assert await hand.end_all(leases) == [True, False, True, True]
    assert await hand.end_all([]) == []


async def test_concurrent_endings_of_one_attempt_end_it_once(app: App, another_app: OpenApp) -> None:
    (run_id,) = await submit_many(app, 1)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    same = Hand(await another_app(), hand.id, hand.name)
    outcomes = ["succeeded", "failed", "released", "cancelled"]
    told = await asyncio.gather(*((hand, same)[n % 2].end(lease, outcome) for n, outcome in enumerate(outcomes)))
    assert sum(told) == 1
    assert len(await app.runs.attempts(run_id)) == 1


async def test_an_ended_attempt_never_changes(app: App, clock: SetClock) -> None:
    run_id = await submit(app, retries=3, jitter=0.0)
    hand = await Hand.join(app)
    history: list[object] = []
    for number in range(4):
        lease = await hand.lease_one()
        clock.forward(1)
        await hand.end(lease, "failed", reason=f"no {number}", log_key=f"logs/{run_id}/{number}.log", log_bytes=number)
        attempts = await app.runs.attempts(run_id)
        assert attempts[:-1] == history
        assert len(attempts) == number + 1
        history = list(attempts)
        clock.forward(3600)
        await app.runs.wake_waiting()


Step = Callable[[App, Hand, int], Awaitable[object]]


async def lease(app: App, hand: Hand, run_id: int) -> None:
    assert (await hand.lease_one()).run_id == run_id


async def wake(app: App, clock: SetClock) -> None:
    clock.forward(86_400)
    await app.runs.wake_waiting()


def end(outcome: str) -> Step:
    async def ended(app: App, hand: Hand, run_id: int) -> None:
        run = await app.runs.get(run_id)
        await app.protocol.finish(hand.id, [Ending(run_id, run.attempt, outcome)])

    return ended


async def cancel(app: App, hand: Hand, run_id: int) -> None:
    await app.runs.cancel(run_id)


async def lose(app: App, hand: Hand, run_id: int) -> None:
    await hand.lose()


async def pause(app: App, hand: Hand, run_id: int) -> None:
    await app.pauses.pause(run_id)


async def resume(app: App, hand: Hand, run_id: int) -> None:
    await app.pauses.resume(run_id)


def paused_and(step: Step) -> Step:
    """The step, of a run that was asked to pause."""

    async def taken(app: App, hand: Hand, run_id: int) -> None:
        await pause(app, hand, run_id)
        await step(app, hand, run_id)

    return taken


STEPS: dict[tuple[RunState, RunState], list[Step]] = {
    (RunState.QUEUED, RunState.RUNNING): [lease],
    (RunState.QUEUED, RunState.CANCELLED): [cancel],
    (RunState.QUEUED, RunState.PAUSED): [pause],
    (RunState.PAUSED, RunState.QUEUED): [resume],
    (RunState.PAUSED, RunState.CANCELLED): [cancel],
    (RunState.RUNNING, RunState.QUEUED): [end("failed"), end("timeout"), end("released"), lose],
    (RunState.RUNNING, RunState.PAUSED): [paused_and(each) for each in (end("failed"), end("released"), lose)],
    (RunState.RUNNING, RunState.SUCCEEDED): [end("succeeded")],
    (RunState.RUNNING, RunState.FAILED): [end("failed"), end("timeout"), lose],
    (RunState.RUNNING, RunState.CANCELLED): [end("cancelled")],
}
"""How each step of the graph is taken."""


def test_every_step_of_the_graph_and_no_other_can_be_tried() -> None:
    assert set(STEPS) == {(state, following) for state, steps in TRANSITIONS.items() for following in steps}


@pytest.mark.parametrize(
    ("state", "following", "number"),
    [(*pair, number) for pair, steps in STEPS.items() for number in range(len(steps))],
)
async def test_each_step_of_the_graph_is_taken(app: App, state: RunState, following: RunState, number: int) -> None:
    again = following in UNLEASED
    run_id = await submit(app, retries=9 if again else 0, max_losses=9 if again else 1, spec=RESUMABLE)
    hand = await Hand.join(app)
    if state is RunState.RUNNING:
        await hand.lease()
    if state is RunState.PAUSED:
        await pause(app, hand, run_id)
    await STEPS[state, following][number](app, hand, run_id)
    assert (await app.runs.get(run_id)).state is following


@pytest.mark.parametrize("state", sorted(ENDED))
async def test_no_step_leads_out_of_an_end(app: App, clock: SetClock, state: RunState) -> None:
    run_id = await submit(app, retries=9, retry_on=("timeout", "lost"))
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), state)
    before = await app.runs.get(run_id)
    for step in {step for steps in STEPS.values() for step in steps} - {lease}:
        try:
            await step(app, hand, run_id)
        except Conflict:
            pass
        assert await app.runs.get(run_id) == before
    await wake(app, clock)
    assert await (await Hand.join(app, "other")).lease() == []
    assert await app.runs.get(run_id) == before


def test_the_diagram_in_the_docs_has_every_step_of_the_graph_and_no_other() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "architecture.md").read_text()
    drawn = re.findall(r"^ +(\w+) --> (\w+)", page.partition("stateDiagram-v2")[2].partition("```")[0], re.MULTILINE)
    assert sorted(drawn) == sorted((state, step) for state, steps in TRANSITIONS.items() for step in steps)


async def test_a_paused_run_is_found_and_counted_and_no_worker_meets_it(app: App, clock: SetClock) -> None:
    run_id, other = await submit_many(app, 2, spec=RESUMABLE)
    await app.pauses.pause(run_id)
    assert await app.runs.counts() == {"ready": 1, "waiting": 0, "paused": 1, "running": 0}
    for where in ({"state": "paused"}, {"state": "paused", "project": "shop"}):
        assert [run.id for run in await app.runs.find(where)] == [run_id]
    assert [run.id for run in await app.runs.find({"state": "queued"})] == [other]
    await wake(app, clock)
    assert [lease.run_id for lease in await (await Hand.join(app)).lease()] == [other]
    await app.runs.cancel(run_id)
    assert await app.runs.find({"state": "paused"}) == []


async def test_the_columns_that_find_work_are_set_only_while_they_are_needed(app: App, clock: SetClock) -> None:
    run_id = await submit(app, retries=1)
    assert await app.runs.counts() == {"ready": 1, "waiting": 0, "paused": 0, "running": 0}
    hand = await Hand.join(app)
    first = await hand.lease_one()
    assert await app.runs.counts() == {"ready": 0, "waiting": 0, "paused": 0, "running": 1}
    await hand.end(first, "failed")
    assert await app.runs.counts() == {"ready": 0, "waiting": 1, "paused": 0, "running": 0}
    await wake(app, clock)
    await hand.end(await hand.lease_one())
    assert await app.runs.counts() == {"ready": 0, "waiting": 0, "paused": 0, "running": 0}
    assert (await app.runs.get(run_id)).state is RunState.SUCCEEDED


async def test_events_come_in_the_order_of_what_happened(app: App) -> None:
    run_ids = await submit_many(app, 20)
    hand = await Hand.join(app)
    await hand.end_all(await hand.lease())
    for run_id in run_ids:
        events = await events_of(app, run_id)
        assert [event.kind for event in events] == ["run_queued", "run_started", "run_finished"]
        assert [event.id for event in events] == sorted({event.id for event in events})


async def test_a_limit_survives_a_change_of_hands(app: App) -> None:
    await set_limit(app, project_limit("shop"), 1)
    await submit_many(app, 2)
    first, second = await Hand.join(app, "first"), await Hand.join(app, "second")
    old = await first.lease_one()
    await first.lose()
    await second.lease_one()
    assert not await first.end(old)
    assert (await in_use(app), await second.lease()) == ({project_limit("shop"): 1}, [])
