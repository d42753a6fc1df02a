"""What spiders did lately: the runs of one, of a project, of all."""

from __future__ import annotations

import pytest

from tests.conftest import SetClock
from tests.items.pasts import crawled
from tests.items.scene import Spider, lines
from tests.projects.making import a_version
from tests.runs.acting import Hand, submit
from tests.tasks.scene import keep
from weft.app import App
from weft.projects.model import Spider as ProjectSpider
from weft.spiders.baseline import (
    FieldFill,
    HealthStatus,
    NormalRange,
    RunProfile,
    field_fills,
    is_flaky,
    normal_items,
    normal_seconds,
)
from weft.tasks.model import Task


async def test_runs_of_a_spider_are_found_whatever_they_are_called(app: App, clock: SetClock) -> None:
    await a_version(app, "shop")
    await keep(app, Task(name="nightly", project="shop", kind="spider", spec={"spider": "prices"}))
    loose = await crawled(app, clock, 3)
    of_task = await crawled(app, clock, 2, task="nightly")
    odd = await crawled(app, clock, 1, task="something")
    failed = await crawled(app, clock, 0, outcome="failed")
    await crawled(app, clock, 1, task="prices", spider="prices")
    await submit(app, task="prices", kind="noop")
    found = await app.histories.of_spider("shop", "prices", 100)
    assert [each.run_id for each in found.runs][1:] == [failed, odd, of_task, loose]
    assert found.tasks == ["nightly"]
    assert [each.items for each in found.runs] == [1, 0, 1, 2, 3]
    assert [each.seconds for each in found.runs] == [1.0, 0.0, 1.0, 2.0, 3.0]
    assert (found.runs[-1].pages, found.runs[-1].errors, found.runs[-1].version) == (6, 1, "1.0")


async def test_no_more_runs_come_back_than_were_asked_for_and_none_of_another_project(
    app: App, clock: SetClock
) -> None:
    for name in ("shop", "other"):
        await a_version(app, name)
        for count in (1, 2, 3):
            await crawled(app, clock, count, project=name)
    found = await app.histories.of_spider("shop", "prices", 2)
    assert [each.items for each in found.runs] == [3, 2]
    assert (await app.histories.of_spider("nowhere", "prices", 2)).runs == []


async def test_a_project_is_summed_up_by_spider(app: App, clock: SetClock) -> None:
    await a_version(app, "shop")
    for count, outcome in ((2, "succeeded"), (4, "succeeded"), (0, "failed")):
        last = await crawled(app, clock, count, outcome=outcome)
    await submit(app, task="shell", kind="noop")
    found = await app.histories.of_project("shop")
    assert list(found) == ["prices"]
    prices = found["prices"]
    assert (prices.runs, prices.items, prices.pages, prices.seconds, prices.ended) == (3, 6, 12, 6.0, 3)
    assert (prices.last_run_id, prices.states, prices.is_flaky) == (last, ["failed", "succeeded", "succeeded"], True)


async def test_a_spider_that_rarely_runs_is_not_forgotten_behind_one_that_often_does(
    app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOST_OF_PROJECT", "MOST_HEALTH"):
        monkeypatch.setattr(f"weft.spiders.history.{name}", 3)
    await a_version(app, "shop", spiders=(ProjectSpider(name="busy"), ProjectSpider(name="daily")))
    await keep(app, Task(name="weekly", project="shop", kind="noop"))
    await submit(app, task="weekly", kind="noop")
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), "failed")
    for _ in range(3):
        await crawled(app, clock, 0, spider="daily", outcome="failed")
    for _ in range(4):
        await crawled(app, clock, 1, spider="busy")
    shop = (await app.histories.of_projects(["shop"]))["shop"]
    assert shop.healths == {"busy": HealthStatus.HEALTHY, "daily": HealthStatus.FAILING, "weekly": HealthStatus.FAILING}
    found = await app.histories.of_project("shop")
    assert {name: (each.runs, each.health) for name, each in found.items()} == {
        "busy": (4, HealthStatus.HEALTHY),
        "daily": (3, HealthStatus.FAILING),
    }


async def test_a_run_that_was_cut_short_counts_with_what_it_had_fetched(app: App, clock: SetClock) -> None:
    await a_version(app, "shop")
    await submit(app, task="prices", kind="spider", spec={"spider": "prices"})
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    stats = {"response_received_count": 7, "log_count/ERROR": 2}
    await Spider(hand, lease).send(lines([{"number": 1}]), stats=stats)
    await hand.end(lease, "cancelled")
    spider_health = (await app.histories.of_project("shop"))["prices"]
    assert (spider_health.items, spider_health.pages, spider_health.errors) == (1, 7, 2)
    [past] = (await app.histories.of_spider("shop", "prices", 10)).runs
    assert (past.items, past.pages, past.errors) == (1, 7, 2)


async def test_projects_tell_their_code_their_queue_and_how_their_last_runs_ended(app: App, clock: SetClock) -> None:
    await a_version(app, "shop", "2.0", at=5)
    await crawled(app, clock, 1)
    await submit(app, kind="noop")
    await submit(app, kind="noop", not_before=clock() + 10**9)
    await submit(app, project="other", kind="noop")
    hand = await Hand.join(app)
    await hand.lease(1)
    found = await app.histories.of_projects(["shop", "other", "none"])
    shop, other, none = found["shop"], found["other"], found["none"]
    assert (shop.version, shop.spiders, shop.deployed_at, shop.deployed_by) == ("2.0", 1, 5, "test")
    assert shop.queued + shop.running + other.queued + other.running == 3
    assert shop.running + other.running == 1
    assert shop.states.count("succeeded") == 1
    assert (other.version, other.spiders) == (None, 0)
    assert (none.states, none.queued, none.last_at) == ([], 0, None)


@pytest.mark.parametrize(
    ("states", "flaky"),
    [
        ([], False),
        (["succeeded"] * 30, False),
        (["failed", "cancelled"], False),
        (["succeeded", "failed"], True),
        (["succeeded"] * 20 + ["failed"], False),
    ],
)
def test_a_spider_is_flaky_where_its_last_twenty_runs_ended_in_both_ways(states: list[str], flaky: bool) -> None:
    assert is_flaky(states) is flaky


def test_what_is_usual_reaches_as_far_as_drift_allows() -> None:
    assert normal_items([10, 10]) is None
    assert normal_items([100, 100, 100]) == NormalRange(70.0, 100.0, 130.0)
    assert normal_items([10, 100, 400]) == NormalRange(10, 100.0, 400)
    assert normal_seconds([10.0, 20.0, 40.0]) == NormalRange(5.0, 20.0, 80.0)
    assert normal_seconds([0.1, 0.1, 0.1]) == NormalRange(0.0, 0.1, 1.1)


def test_fields_are_told_with_their_shares_the_fullest_first() -> None:
    def profile(items: int, **fields: float) -> RunProfile:
        return RunProfile(items=items, seconds=1, errors=0, fields=fields, statuses={})

    found = field_fills([profile(2, url=1.0, price=0.5), profile(0), profile(4, url=1.0, stock=0.25)])
    assert found == [FieldFill("url", (1.0, 1.0)), FieldFill("price", (0.5, 0.0)), FieldFill("stock", (0.0, 0.25))]
