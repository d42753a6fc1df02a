"""How far runs are: the items that they have yielded, and how fast those came of late."""

from __future__ import annotations

from sqlalchemy import insert

from tests.items.scene import Spider, start
from tests.runs.acting import submit
from weft.app import App
from weft.clock import SECOND
from weft.db import schema
from weft.spiders.timeline import POINTS, RunThroughput


async def sampled(app: App, run_id: int, counts: list[int]) -> None:
    """One sample each half a minute."""
    rest = {"requests": 0, "errors": 0, "memory": 0}
    rows = [
        {"run_id": run_id, "attempt": 1, "at": place * 30 * SECOND, "items": count} | rest
        for place, count in enumerate(counts)
    ]
    await app.db.transact(lambda tx: tx.execute(schema.samples.delete()))
    await app.db.transact(lambda tx: tx.execute(insert(schema.samples), rows))


async def test_a_run_that_runs_has_its_items_and_how_many_came_each_minute(app: App) -> None:
    spider, idle = await start(app), await submit(app)
    await spider.yields({"n": 1}, {"n": 2})
    await sampled(app, spider.run_id, [0, 5, 5, 20])
    assert await app.insights.pace.of([spider.run_id, idle]) == {spider.run_id: RunThroughput(2, (10, 0, 30))}
    await sampled(app, spider.run_id, list(range(100)))
    assert (await app.insights.pace.of([spider.run_id]))[spider.run_id].rates == (2,) * POINTS


async def test_a_run_that_has_ended_has_only_its_items(app: App) -> None:
    spider = await start(app)
    await spider.yields({"n": 1})
    await sampled(app, spider.run_id, [0, 5])
    await spider.hand.end(spider.lease)
    assert await app.insights.pace.of([spider.run_id]) == {spider.run_id: RunThroughput(1)}


async def test_a_retried_run_has_the_items_of_its_last_attempt(app: App) -> None:
    spider = await start(app, retries=1, delay_seconds=0.0)
    await spider.yields({"n": 1}, {"n": 2})
    await spider.hand.end(spider.lease, "failed")
    await app.runs.wake_waiting()
    again = Spider(spider.hand, await spider.hand.lease_one())
    await again.yields({"n": 1})
    assert (await app.insights.pace.of([spider.run_id]))[spider.run_id].items == 1
    assert await app.insights.pace.of([]) == {}
