"""Counts are rows beside what they count: they never fall, and every process that asks hears the same."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.conftest import OpenApp, SetClock
from tests.items.scene import Spider, start
from tests.runs.acting import Hand, rows_of, submit
from weft.app import App
from weft.clock import SECOND
from weft.counters import counters, store
from weft.counters.counters import OTHERS
from weft.counters.store import (
    BYTES,
    DISPATCH,
    ERRORS,
    FETCH,
    ITEMS,
    LATENESS,
    MINUTE,
    PAGES,
    STATE,
    TEN_MINUTES,
    CounterIncrement,
    growth,
)
from weft.db import schema
from weft.runs.model import Ending, Trigger


async def crawled(spider: Spider, pages: int, items: int = 0, **more: Any) -> None:
    """Yield items, and tell how many pages there were so far."""
    stats = {"response_received_count": pages, "downloader/response_bytes": pages * 100, **more}
    await spider.send(b'{"item":{"n":1}}\n' * items, stats=stats)


async def of_last_hour(app: App, metric: str, projects: set[str] | None = None) -> list[int]:
    return list((await app.counters.recent(projects))[MINUTE].of(metric))


async def test_what_is_stored_is_counted_in_its_minute_with_what_the_spider_says_of_itself(
    app: App, clock: SetClock
) -> None:
    spider = await start(app)
    await crawled(spider, pages=3, items=2)
    clock.forward(60)
    await crawled(spider, pages=7, items=1, **{"log_count/ERROR": 2})
    told = {name: (await of_last_hour(app, name))[-2:] for name in (ITEMS, PAGES, ERRORS, BYTES)}
    assert told == {ITEMS: [2, 1], PAGES: [3, 4], ERRORS: [0, 2], BYTES: [300, 400]}
    assert sum((await app.counters.recent())[TEN_MINUTES].of(PAGES)) == 7
    assert await of_last_hour(app, PAGES, {"news"}) == [0] * 60


async def test_each_minute_of_a_project_is_one_row_for_items_pages_errors_and_bytes(app: App, clock: SetClock) -> None:
    spider = await start(app)
    minutes = []
    for pages in (3, 7):
        await crawled(spider, pages=pages, items=1, **{"log_count/ERROR": pages})
        minutes.append(clock() - clock() % (MINUTE * SECOND))
        clock.forward(60)
    for _ in range(2):
        await app.counters.fold()
        found = {row for row in await rows_of(app, schema.counts) if row[0] == MINUTE}
        assert {(row[1], *row[-2:]) for row in found if row[2:5] == ("shop", "", "")} == {
            (at, metric, count)
            for at, told in zip(minutes, ((1, 3, 3, 300), (1, 4, 4, 400)), strict=True)
            for metric, count in zip((ITEMS, PAGES, ERRORS, BYTES), told, strict=True)
        }


async def test_a_delivery_that_is_repeated_counts_once(app: App) -> None:
    spider = await start(app)
    for _ in range(3):
        await spider.send(b'{"item":{"n":1}}\n', first=1, stats={"response_received_count": 4})
    totals = await app.counters.totals()
    assert (totals.sum(ITEMS), totals.sum(PAGES)) == (1, 4)


async def test_counts_are_the_same_after_they_were_folded_and_for_every_process(
    app: App, another_app: OpenApp, clock: SetClock
) -> None:
    spider, before = await start(app), []
    other = await another_app()
    for pages in (2, 5, 9):
        await crawled(spider, pages, items=1)
        before.append(await app.counters.totals())
        assert await other.counters.totals() == before[-1]
        hour = await app.counters.recent()
        assert await app.counters.fold() == 1
        assert (await app.counters.totals(), await app.counters.recent()) == (before[-1], hour)
        clock.forward(60)
    assert [each.by_name(PAGES) for each in before] == [{("shop", "quotes"): count} for count in (2, 5, 9)]
    assert before[-1].by_worker(PAGES) == {"hand": 9}
    assert await app.counters.fold() == 0


async def test_two_that_fold_at_once_count_nothing_twice(app: App, another_app: OpenApp) -> None:
    spider, other = await start(app), await another_app()
    for pages in range(1, 30):
        await crawled(spider, pages)
    tasks = [app.db.transact(each.counters._fold) for each in (app, other, app, other)]
    assert sum(await asyncio.gather(*tasks)) == 29
    assert (await app.counters.totals()).sum(PAGES) == 29


async def test_workers_that_store_at_once_do_not_wait_for_a_row_that_all_of_them_count_in(app: App) -> None:
    hands = [await Hand.join(app, name) for name in ("w1", "w2", "w3")]
    spiders = [await start(app, hand=hand) for hand in hands]
    await asyncio.gather(*(crawled(spider, pages) for pages in range(1, 6) for spider in spiders))
    assert (await app.counters.totals()).sum(PAGES) == 15


async def test_every_run_that_ends_is_counted_however_it_ends(app: App, clock: SetClock) -> None:
    hand = await Hand.join(app)
    for outcome in ("succeeded", "oom"):
        await submit(app)
        await hand.end(await hand.lease_one(), outcome)
    await app.runs.cancel(await submit(app))
    await submit(app, skipped="its upstream task failed")
    await submit(app, retries=1, delay_seconds=0.0)
    await hand.end(await hand.lease_one(), "failed")
    totals = await app.counters.totals()
    ended = {name: totals.sum(name) for name in sorted(totals.metrics("ended/"))}
    assert ended == {"ended/cancelled": 1, "ended/oom": 1, "ended/skipped": 1, "ended/succeeded": 1}
    assert totals.by_worker("ended/oom") == {"hand": 1}
    states = {state: (await of_last_hour(app, STATE + state))[-1] for state in ("succeeded", "failed", "cancelled")}
    assert states == {"succeeded": 1, "failed": 1, "cancelled": 2}


async def test_runs_that_end_together_are_counted_together(app: App, clock: SetClock) -> None:
    """Each with its own outcome and wait, and one entry for all of a project on a worker."""
    hand = await Hand.join(app)
    leases = []
    for project, wait in (("shop", 0.02), ("news", 0.3), ("shop", 0.03), ("shop", 2), ("shop", 4)):
        await submit(app, project=project, trigger=Trigger.SCHEDULE, fire_at=clock() - 7 * SECOND)
        clock.forward(wait)
        leases.append(await hand.lease_one())
    outcomes = ("succeeded", "succeeded", "failed", "succeeded", "released")
    told = [Ending(each.run_id, each.attempt, outcome) for each, outcome in zip(leases, outcomes, strict=True)]
    assert await app.protocol.finish(hand.id, told) == [True] * 5
    entries = {row[2]: (row[3:5], msgspec.json.decode(row[5])) for row in await rows_of(app, schema.count_entries)}
    late = {f"{LATENESS}/10": 3, f"{LATENESS}/sum": 21 * SECOND}
    waits = {f"{DISPATCH}/0.025": 1, f"{DISPATCH}/0.05": 1, f"{DISPATCH}/2.5": 1, f"{DISPATCH}/sum": 2_050_000}
    ended = {"ended/succeeded": 2, "ended/failed": 1, "state/succeeded": 2, "state/failed": 1}
    assert entries["shop"] == (("", "hand"), {**ended, **waits, **late})
    assert entries["news"] == (
        ("", "hand"),
        {
            "ended/succeeded": 1,
            "state/succeeded": 1,
            f"{DISPATCH}/0.5": 1,
            f"{DISPATCH}/sum": 300_000,
            f"{LATENESS}/10": 1,
            f"{LATENESS}/sum": 7 * SECOND,
        },
    )


async def test_old_minutes_go_and_totals_stay(app: App, clock: SetClock) -> None:
    spider = await start(app)
    await crawled(spider, pages=3)
    await app.counters.fold()
    clock.forward(3 * 86_400)
    await crawled(spider, pages=4)
    await app.counters.fold()
    await app.counters.forget_old()
    assert {row[:2] for row in await rows_of(app, schema.counts) if row[0]} == {
        (step, clock() - clock() % (step * 1_000_000)) for step in (MINUTE, TEN_MINUTES)
    }
    assert (await app.counters.totals()).sum(PAGES) == 4


async def test_counts_of_a_worker_are_forgotten_with_it(app: App) -> None:
    await crawled(await start(app), pages=3)
    await app.counters.fold()
    await app.db.transact(lambda tx: tx.execute(schema.workers.delete()).rowcount)
    await app.counters.forget_old()
    totals = await app.counters.totals()
    assert (totals.by_worker(PAGES), totals.sum(PAGES)) == ({}, 3)


async def test_more_spiders_than_are_counted_by_themselves_are_counted_together(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "MOST_NAMES", 2)
    for spider in ("a", "b", "c", "d"):
        await crawled(await start(app, spider), pages=3)
    expected = {("shop", "a"): 3, ("shop", "b"): 3, ("shop", OTHERS): 6}
    for _ in range(2):
        assert (await app.counters.totals()).by_name(PAGES) == expected
        await app.counters.fold()
    await crawled(await start(app, "e"), pages=1)
    assert (await app.counters.totals()).by_name(PAGES) == expected | {("shop", OTHERS): 7}


async def test_no_spider_can_make_a_count_overflow(app: App) -> None:
    for _ in range(3):
        spider = await start(app)
        await crawled(spider, pages=2**53)
        await crawled(spider, pages=-1)
        await spider.hand.end(spider.lease)
    await app.db.transact(lambda tx: store.grow(tx, {(0, 0, "shop", "quotes", "", PAGES): 2**62}))
    for _ in range(3):
        await app.counters.fold()
        await app.db.transact(lambda tx: store.add(tx, [CounterIncrement("shop", {PAGES: 2**62}, "quotes")], 0))
    assert (await app.counters.totals()).sum(PAGES) > 2**62


@pytest.mark.parametrize("value", ["many", None, True, -3, float("nan"), float("inf"), [1], 10**400, 2**60])
def test_what_is_no_count_counts_nothing(value: Any) -> None:
    assert growth({}, {"response_received_count": value, "weft/fetch_seconds": value}) == {}


def test_fetches_are_counted_by_how_long_they_took() -> None:
    before = {f"{FETCH}/sum": 1_000_000, f"{FETCH}/0.5": 2}
    after = {"weft/fetch_seconds": 41.5, "weft/fetch_seconds/0.5": 3, "weft/fetch_seconds/+Inf": 1}
    assert growth(before, after) == {f"{FETCH}/sum": 40_500_000, f"{FETCH}/0.5": 1, f"{FETCH}/+Inf": 1}
