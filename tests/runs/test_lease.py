"""Who gets which run: priority, labels, and a fair share for every project."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.conftest import OpenApp, SetClock
from tests.runs.acting import Hand, facts, set_project, submit, submit_many
from weft.app import App
from weft.errors import LeaseLost
from weft.runs.load_balancing import fair_shares
from weft.runs.model import RunState


async def test_a_leased_run_is_running_on_its_worker(app: App, clock: SetClock) -> None:
    run_id = await submit(app, spec={"sleep_seconds": 1}, correlation_id="order-9", timeout_seconds=5)
    hand = await Hand.join(app, "w1")
    lease = await hand.lease_one()
    assert (lease.run_id, lease.attempt, lease.kind, lease.task) == (run_id, 1, "noop", "prices")
    assert (lease.spec.spec, lease.spec.timeout_seconds) == ({"sleep_seconds": 1}, 5)
    assert lease.correlation_id == "order-9"
    run = await app.runs.get(run_id)
    assert (run.state, run.attempt, run.worker, run.started_at) == (RunState.RUNNING, 1, "w1", clock())
    assert await facts(app, run_id) == ["run_queued", "run_started"]


async def test_no_two_workers_get_the_same_run(app: App, another_app: OpenApp) -> None:
    run_ids = await submit_many(app, 300)
    apps = [app, await another_app()]
    hands = [await Hand.join(apps[n % 2], f"w{n}") for n in range(6)]
    batches = await asyncio.gather(*(hand.lease(10) for hand in hands * 8))
    leased = [lease.run_id for batch in batches for lease in batch]
    assert len(leased) == len(set(leased))
    rest = [lease.run_id for lease in await hands[0].lease(1000)]
    assert sorted(leased + rest) == sorted(run_ids)


async def test_the_highest_priority_is_leased_first_and_then_the_oldest(app: App) -> None:
    wanted = {}
    for priority in (0, 5, -3, 5, 9):
        wanted[await submit(app, priority=priority)] = priority
    hand = await Hand.join(app)
    leased = [(await hand.lease_one()).run_id for _ in wanted]
    assert leased == sorted(wanted, key=lambda run_id: (-wanted[run_id], run_id))


async def test_priority_counts_across_the_lanes_of_a_project(app: App) -> None:
    urgent = await submit(app, priority=9, tags=("a",))
    ordinary = await submit(app, priority=5, tags=("b",))
    low = await submit(app, priority=1, tags=("a",))
    hand = await Hand.join(app)
    assert [lease.run_id for lease in await hand.lease(2)] == [urgent, ordinary]
    assert (await hand.lease_one()).run_id == low


async def test_a_worker_gets_no_more_than_it_wants(app: App) -> None:
    await submit_many(app, 5)
    hand = await Hand.join(app)
    assert len(await hand.lease(3)) == 3
    assert len(await hand.lease(3)) == 2
    assert await hand.lease(3) == []


async def test_labels_choose_the_worker(app: App) -> None:
    plain = await submit(app)
    browser = await submit(app, labels=("browser",))
    both = await submit(app, labels=("browser", "eu"))
    assert {lease.run_id for lease in await (await Hand.join(app, "w1")).lease()} == {plain}
    assert await (await Hand.join(app, "w2", ["eu"])).lease() == []
    assert {lease.run_id for lease in await (await Hand.join(app, "w3", ["browser"])).lease()} == {browser}
    assert {lease.run_id for lease in await (await Hand.join(app, "w4", ["x", "eu", "browser"])).lease()} == {both}


async def test_a_run_that_nobody_may_serve_does_not_stand_in_the_way(app: App) -> None:
    await submit_many(app, 20, labels=("gpu",), priority=9)
    run_id = await submit(app)
    assert (await (await Hand.join(app)).lease_one()).run_id == run_id


async def test_more_lanes_than_one_look_covers_are_all_served(app: App) -> None:
    run_ids = {await submit(app, tags=(f"t{number}",)) for number in range(12)}
    served: set[int] = set()
    hand = await Hand.join(app)
    for _ in run_ids:
        served.add((await hand.lease_one()).run_id)
    assert served == run_ids


async def test_places_are_shared_equally_between_projects(app: App) -> None:
    await submit_many(app, 50, project="big")
    await submit_many(app, 50, project="small")
    leased = await (await Hand.join(app)).lease(10)
    assert Counter(lease.project for lease in leased) == {"big": 5, "small": 5}


async def test_a_project_with_several_lanes_gets_no_more_than_its_share(app: App) -> None:
    for tag in "abc":
        await submit_many(app, 10, project="big", tags=(tag,))
    await submit_many(app, 10, project="small")
    leased = await (await Hand.join(app)).lease(8)
    assert Counter(lease.project for lease in leased) == {"big": 4, "small": 4}


async def test_places_are_shared_by_weight(app: App) -> None:
    await set_project(app, "heavy", weight=3)
    await set_project(app, "light", weight=1)
    await submit_many(app, 50, project="heavy")
    await submit_many(app, 50, project="light")
    leased = await (await Hand.join(app)).lease(12)
    assert Counter(lease.project for lease in leased) == {"heavy": 9, "light": 3}


async def test_what_a_project_leaves_free_goes_to_the_others(app: App) -> None:
    await submit_many(app, 50, project="big")
    await submit_many(app, 2, project="small")
    leased = await (await Hand.join(app)).lease(10)
    assert Counter(lease.project for lease in leased) == {"big": 8, "small": 2}


async def test_a_small_project_is_served_beside_a_flood_of_urgent_runs(app: App) -> None:
    await submit_many(app, 200, project="flood", priority=100)
    small = await submit(app, project="small")
    hand = await Hand.join(app)
    first = [(await hand.lease_one()).run_id for _ in range(2)]
    assert small in first


async def test_one_place_at_a_time_is_shared_in_turns(app: App) -> None:
    for project in ("a", "b", "c"):
        await submit_many(app, 10, project=project)
    hand = await Hand.join(app)
    turns = []
    for _ in range(6):
        lease = await hand.lease_one()
        turns.append(lease.project)
        await hand.end(lease)
    assert set(turns[:3]) == set(turns[3:]) == {"a", "b", "c"}


def test_the_project_furthest_below_its_share_comes_first() -> None:
    weights = {"a": 1.0, "b": 1.0}
    assert fair_shares(1, weights, {"a": 1}, {}) == ["b"]
    assert fair_shares(1, weights, {"a": 1, "b": 1}, {"a": 2, "b": 1}) == ["b"]
    assert fair_shares(3, {"a": 2.0, "b": 1.0}, {}, {}) == ["a", "b", "a"]
    assert fair_shares(3, {}, {}, {}) == []


async def test_a_worker_that_was_given_up_for_lost_leases_nothing(app: App) -> None:
    await submit(app)
    hand = await Hand.join(app)
    await hand.lose()
    with pytest.raises(LeaseLost):
        await hand.lease()
    assert (await app.runs.counts())["ready"] == 1
