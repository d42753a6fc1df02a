"""How many runs of a task, a tag and a project run at once: never more than the limit, whoever leases."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import OpenApp
from tests.runs.acting import Hand, in_use, set_limit, submit, submit_many
from weft.app import App
from weft.clock import Moment
from weft.runs.lanes import project_limit, tag_limit, task_limit
from weft.runs.leases import Leases
from weft.runs.model import Ending, Lease

COUNTED: dict[str, tuple[str, dict[str, object]]] = {
    "project": (project_limit("shop"), {}),
    "tag": (tag_limit("shop", "slow"), {"tags": ("slow",)}),
    "task": (task_limit(4), {"task_id": 4, "max_running": 3}),
}


@pytest.fixture(params=COUNTED)
def counted(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """The key of a limit, and the fields of runs that it counts."""
    return COUNTED[str(request.param)]


async def test_a_limit_is_never_exceeded_by_concurrent_workers(
    app: App, another_app: OpenApp, counted: tuple[str, dict[str, object]]
) -> None:
    key, fields = counted
    await set_limit(app, key, 3)
    run_ids = await submit_many(app, 30, **fields)
    apps = [app, await another_app()]
    hands = [await Hand.join(apps[n % 2], f"w{n}") for n in range(4)]
    running: set[int] = set()
    most = 0

    async def work(hand: Hand) -> None:
        nonlocal most
        while len(done) < len(run_ids):
            leases = await hand.lease(5)
            running.update(lease.run_id for lease in leases)
            most = max(most, len(running))
            for lease in leases:
                running.discard(lease.run_id)
                assert await hand.end(lease)
                done.add(lease.run_id)

    done: set[int] = set()
    async with asyncio.timeout(60):
        await asyncio.gather(*map(work, hands))
    assert done == set(run_ids)
    assert most <= 3
    assert await in_use(app) == {key: 0}


async def test_a_limit_is_full_until_a_run_ends(app: App, counted: tuple[str, dict[str, object]]) -> None:
    key, fields = counted
    await set_limit(app, key, 2)
    await submit_many(app, 3, **fields)
    hand = await Hand.join(app)
    first, _ = await hand.lease()
    assert (await hand.lease(), await in_use(app)) == ([], {key: 2})
    await hand.end(first)
    assert len(await hand.lease()) == 1


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "timeout", "cancelled", "released"])
async def test_a_place_is_freed_however_the_attempt_ends(app: App, outcome: str) -> None:
    await set_limit(app, project_limit("shop"), 1)
    await submit(app)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), outcome)
    assert await in_use(app) == {project_limit("shop"): 0}


async def test_a_place_is_freed_when_the_worker_is_lost(app: App) -> None:
    await set_limit(app, project_limit("shop"), 2)
    await submit_many(app, 3)
    lost, other = await Hand.join(app, "lost"), await Hand.join(app, "other")
    await lost.lease()
    assert await lost.lose() == 2
    assert len(await other.lease()) == 2


async def test_a_refused_ending_frees_no_place(app: App) -> None:
    await set_limit(app, project_limit("shop"), 1)
    await submit(app)
    hand, other = await Hand.join(app), await Hand.join(app, "other")
    lease = await hand.lease_one()
    assert not await other.end(lease)
    assert await hand.end(lease)
    assert not await hand.end(lease)
    assert await in_use(app) == {project_limit("shop"): 0}


async def test_a_full_limit_holds_back_only_what_it_counts(app: App) -> None:
    await set_limit(app, tag_limit("shop", "slow"), 1)
    await submit_many(app, 5, tags=("slow",), priority=9)
    quick = await submit(app, tags=("quick",))
    elsewhere = await submit(app, project="news", tags=("slow",))
    leased = {lease.run_id for lease in await (await Hand.join(app)).lease()}
    assert {quick, elsewhere} < leased
    assert len(leased) == 3


async def test_the_tightest_of_several_limits_counts(app: App) -> None:
    await set_limit(app, project_limit("shop"), 5)
    await set_limit(app, tag_limit("shop", "slow"), 2)
    await submit_many(app, 9, tags=("slow",))
    await submit_many(app, 9)
    hand = await Hand.join(app)
    leased = await hand.lease()
    assert len(leased) == 5
    assert len([lease for lease in leased if lease.spec.tags]) == 2


async def test_a_limit_counts_runs_that_ran_before_it_was_set(app: App) -> None:
    await submit_many(app, 4)
    hand = await Hand.join(app)
    before = await hand.lease(2)
    await set_limit(app, project_limit("shop"), 3)
    assert len(await hand.lease()) == 1
    await hand.end_all(before)
    assert await in_use(app) == {project_limit("shop"): 1}


async def test_a_limit_that_was_removed_and_set_again_counts_right(app: App) -> None:
    key = project_limit("shop")
    await set_limit(app, key, 2)
    await submit_many(app, 10)
    hand = await Hand.join(app)
    before = await hand.lease()
    await set_limit(app, key, None)
    await set_limit(app, key, 2)
    assert await hand.lease() == []
    await hand.end_all(before)
    assert await in_use(app) == {key: 0}


async def test_a_lower_limit_waits_for_what_already_runs(app: App) -> None:
    key = project_limit("shop")
    await set_limit(app, key, 3)
    await submit_many(app, 5)
    hand = await Hand.join(app)
    first, second, _ = await hand.lease()
    await set_limit(app, key, 1)
    await hand.end(first)
    assert await hand.lease() == []
    await hand.end(second)
    assert await hand.lease() == []


async def test_a_removed_limit_holds_nothing_back(app: App) -> None:
    key = project_limit("shop")
    await set_limit(app, key, 1)
    await submit_many(app, 3)
    hand = await Hand.join(app)
    leases: list[Lease] = await hand.lease()
    await set_limit(app, key, None)
    leases += await hand.lease()
    assert len(leases) == 3
    assert all(await hand.end_all(leases))
    assert await in_use(app) == {}


@pytest.mark.parametrize("database_kind", ["postgres", "mariadb"], indirect=True)
@pytest.mark.parametrize("limits_before", [0, 1])
async def test_a_limit_that_is_set_while_a_run_ends_does_not_count_it_for_ever(
    app: App, another_app: OpenApp, limits_before: int
) -> None:
    keys = [tag_limit("shop", "slow"), project_limit("shop")]
    for key in keys[:limits_before]:
        await set_limit(app, key, 3)
    await submit(app, tags=("slow",))
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    other, loop = await another_app(), asyncio.get_running_loop()
    asked: list[Moment] = []

    def clock() -> Moment:
        """What the ending asks when it has read the run and is about to write."""
        asked.append(1)
        if len(asked) == 1:
            asyncio.run_coroutine_threadsafe(set_limit(other, keys[limits_before], 3), loop).result(20)
        return 1

    ending = Ending(run_id=lease.run_id, attempt=lease.attempt, outcome="succeeded")
    assert await Leases(app.db, app.wakeups, clock).finish(hand.id, [ending]) == [True]
    assert set((await in_use(app)).values()) == {0}


async def test_runs_that_a_limit_holds_back_are_counted(app: App) -> None:
    await set_limit(app, project_limit("shop"), 1)
    await submit_many(app, 6)
    await submit_many(app, 2, project="bank")
    assert await app.runs.held() == 5, "one of six may start"
    hand = await Hand.join(app)
    first = await hand.lease_one()
    counts = await app.runs.counts({"shop"})
    assert (counts["ready"], await app.runs.held({"shop"}), await app.runs.held({"bank"})) == (5, 5, 0)
    assert await app.runs.held() == 5
    await hand.end(first)
    assert await app.runs.held() == 4


async def test_a_limit_with_room_left_holds_back_what_does_not_fit(app: App) -> None:
    await set_limit(app, project_limit("shop"), 3)
    await set_limit(app, tag_limit("shop", "slow"), 1)
    await submit_many(app, 3, tags=("slow",))
    assert await app.runs.held() == 2
    await submit_many(app, 1)
    assert await app.runs.held() == 2
    await submit_many(app, 4)
    assert await app.runs.held({"shop"}) == 5
