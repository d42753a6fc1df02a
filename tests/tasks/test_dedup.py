"""A run whose target is pending, or was just done, is dropped (E9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import Hand, facts, keep, noop, runs_of, settle
from weft.app import App
from weft.errors import Invalid
from weft.tasks.model import Deduplication, UpstreamTask


def page(**dedup: Any) -> Any:
    return noop("page", params={"url": "a", "depth": 1}, dedup=Deduplication(**dedup))


async def test_a_target_that_is_pending_is_not_started_again(app: App, hand: Hand) -> None:
    await keep(app, page())
    first = await app.tasks.start("default", "page", {"url": "x"})
    again = await app.tasks.start("default", "page", {"url": "x"})
    assert (first.fresh, again.fresh, again.run_id) == (True, False, first.run_id)
    assert again.why == "same target pending or just done"
    leases = await hand.lease()
    assert not (await app.tasks.start("default", "page", {"url": "x"})).fresh
    await hand.finish(*leases)
    assert (await app.tasks.start("default", "page", {"url": "x"})).fresh


async def test_another_target_is_started(app: App) -> None:
    await keep(app, page())
    answers = [
        await app.tasks.start("default", "page", params) for params in ({"url": "x"}, {"url": "y"}, {"depth": 2})
    ]
    assert all(answer.fresh for answer in answers)


async def test_a_parameter_that_is_not_named_does_not_make_another_target(app: App) -> None:
    await keep(app, page(params=("url",)))
    assert (await app.tasks.start("default", "page", {"url": "x", "depth": 1})).fresh
    assert not (await app.tasks.start("default", "page", {"url": "x", "depth": 9})).fresh


async def test_what_was_done_within_the_window_is_not_done_again(app: App, clock: SetClock, hand: Hand) -> None:
    await keep(app, page(window_seconds=600))
    await app.tasks.start("default", "page")
    await hand.work()
    clock.forward(599)
    assert not (await app.tasks.start("default", "page")).fresh
    clock.forward(1)
    assert (await app.tasks.start("default", "page")).fresh


async def test_two_tasks_have_different_targets(app: App) -> None:
    await keep(app, page(), noop("other", params={"url": "a", "depth": 1}, dedup=Deduplication()))
    assert (await app.tasks.start("default", "page")).fresh
    assert (await app.tasks.start("default", "other")).fresh


async def test_many_starts_of_one_target_at_once_make_one_run(app: App, another_app: OpenApp) -> None:
    await keep(app, page())
    apps = [app, await another_app()]
    answers = await asyncio.gather(*(each.tasks.start("default", "page") for each in apps * 10))
    assert len({answer.run_id for answer in answers}) == 1
    assert sum(answer.fresh for answer in answers) == 1
    assert len(await runs_of(app, "page")) == 1


async def test_a_tick_whose_target_was_just_done_is_dropped(app: App, clock: SetClock, hand: Hand) -> None:
    every_minute = {"when": "* * * * *", "overlap": "allow"}
    await keep(app, noop("t", every_minute, params={"url": "a"}, dedup=Deduplication(window_seconds=150)))
    for _ in range(4):
        clock.forward(60)
        await app.scheduler.tick()
        await hand.work()
    ticks = await app.tasks.ticks(await app.tasks.get("default", "t"))
    assert [tick.outcome for tick in ticks[::-1]] == ["queued", "duplicate", "duplicate", "queued"]
    assert [fact.data["why"] for fact in await facts(app, "tick_skipped")] == ["duplicate", "duplicate"]


async def test_of_ticks_that_come_together_one_is_enough_for_a_target(app: App, clock: SetClock) -> None:
    together = {"when": "* * * * *", "overlap": "allow", "misfire": "all"}
    await keep(app, noop("t", together, dedup=Deduplication()))
    clock.forward(300)
    await app.scheduler.tick()
    assert len(await runs_of(app, "t")) == 1


async def test_a_start_by_hand_finds_the_run_that_a_tick_has_queued(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", "* * * * *", dedup=Deduplication()))
    clock.forward(60)
    await app.scheduler.tick()
    (run,) = await runs_of(app, "t")
    answer = await app.tasks.start("default", "t")
    assert (answer.fresh, answer.run_id) == (False, run.id)


async def test_what_follows_an_upstream_task_is_never_dropped(app: App, hand: Hand) -> None:
    """A dropped run would leave those that come after it waiting."""
    await keep(app, noop("a"), noop("b", after=(UpstreamTask("a"),), dedup=Deduplication(window_seconds=3600)))
    for _ in range(2):
        await app.tasks.start("default", "a")
        assert await settle(app, hand) == ["a", "b"]


def test_a_dedup_key_may_only_name_parameters_of_the_task() -> None:
    with pytest.raises(Invalid, match=r"dedup.params is 'uri'; it must be a parameter of the task"):
        page(params=("uri",))
