"""A finished run beside those before it."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import select

from tests.items.yielding import Crawl, crawled
from weft.app import App
from weft.db import schema

QUOTE = {"text": "a", "author": "b"}


async def history(app: App) -> None:
    for _ in range(3):
        await crawled(app, [QUOTE | {"number": number} for number in range(10)])
    while await app.comparer.tick():
        pass


async def drift_of(app: App, run_id: int) -> Any:
    while await app.comparer.tick():
        pass
    return (await app.items.stats(run_id))[-1].drift


async def test_a_run_like_those_before_it_has_no_drift(app: App) -> None:
    await history(app)
    run = await crawled(app, [QUOTE | {"number": number} for number in range(10)])
    assert await drift_of(app, run.run_id) is None


async def test_a_run_with_fewer_items_and_an_empty_field_is_marked_with_both(app: App) -> None:
    await history(app)
    run = await crawled(app, [{"text": "a", "author": "", "number": 1}])
    drift = await drift_of(app, run.run_id)
    assert [mark["what"] for mark in drift["marks"]] == ["items", "field:author"]
    assert drift["marks"][0]["text"] == "1 items; the last 3 runs had 10"


async def test_a_drift_is_an_event(app: App) -> None:
    await history(app)
    run = await crawled(app, [])
    await drift_of(app, run.run_id)
    kinds = select(schema.events.c.kind).where(schema.events.c.run_id == run.run_id)
    assert "run_drifted" in await app.db.read(lambda tx: [row.kind for row in tx.rows(kinds)])


async def test_a_run_that_goes_on_is_not_compared_yet(app: App) -> None:
    await history(app)
    crawl = await Crawl.begin(app)
    await crawl.yields([QUOTE])
    assert await app.comparer.tick() == 0
    await crawl.ends()
    assert await app.comparer.tick() == 1


async def test_a_run_is_compared_once(app: App) -> None:
    await crawled(app, [QUOTE])
    assert await app.comparer.tick() == 1
    assert await app.comparer.tick() == 0


async def test_runs_of_another_spider_do_not_count(app: App) -> None:
    await history(app)
    run = await crawled(app, [QUOTE], dataset="others")
    assert await drift_of(app, run.run_id) is None


async def test_statistics_that_are_no_numbers_keep_nobody_from_being_compared(app: App) -> None:
    for stats in (
        {"log_count/ERROR": "many"},
        {"log_count/ERROR": [1]},
        {"log_count/ERROR": 1e308},
        {"downloader/response_status_count/200": "all", "downloader/response_status_count/404": 2},
        {"downloader/response_status_count/200": {"a": None}},
    ):
        run = await Crawl.begin(app)
        await run.yields([QUOTE], stats=stats)
        await run.ends()
        await drift_of(app, run.run_id)
    assert (
        await app.db.read(lambda tx: tx.rows(select(schema.run_stats).where(schema.run_stats.c.profile.is_(None))))
        == []
    )


async def test_a_profile_has_no_more_fields_than_people_can_look_at(app: App) -> None:
    run = await crawled(app, [{f"{number}-{each}": 1 for each in range(60)} for number in range(20)] + [{"x" * 300: 1}])
    assert await drift_of(app, run.run_id) is None
    (profile,) = await app.db.read(lambda tx: [row.profile for row in tx.rows(select(schema.run_stats))])
    assert len(msgspec.json.decode(profile)["fields"]) == 500
