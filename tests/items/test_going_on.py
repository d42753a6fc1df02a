"""Crawls of several attempts: what they have yielded together."""

from __future__ import annotations

import pytest

from tests.items.scene import Spider
from tests.runs.acting import Hand, submit
from weft.app import App
from weft.items.model import ItemQuery
from weft.runs.model import NOT_KEPT


async def crawl(app: App, ends: tuple[str, str], *, resumable: bool) -> int:
    """A run with the items 1 and 2 of its first attempt, and 3 of the one that has succeeded."""
    run_id = await submit(app, task="quotes", spec={"spider": "quotes", "resumable": resumable}, retries=1)
    hand = await Hand.join(app)
    first = Spider(hand, await hand.lease_one())
    await first.yields({"number": 1}, {"number": 2})
    await hand.end(first.lease, ends[0], reason=ends[1])
    await app.db.transact(lambda tx: tx.connection.exec_driver_sql("UPDATE runs SET not_before = 1"))
    await app.runs.wake_waiting()
    second = Spider(hand, await hand.lease_one())
    await second.yields({"number": 3})
    await hand.end(second.lease)
    return run_id


async def numbers(app: App, wanted: ItemQuery) -> list[int]:
    return [row.data["number"] async for row in app.items.rows(wanted)]


async def test_a_crawl_that_went_on_has_the_items_of_before_and_after(app: App) -> None:
    run_id = await crawl(app, ("released", "paused"), resumable=True)
    assert await numbers(app, ItemQuery(run_id=run_id)) == [1, 2, 3]
    assert await numbers(app, ItemQuery(run_id=run_id, attempt=1)) == [1, 2]
    assert await numbers(app, ItemQuery(run_id=run_id, attempt=2)) == [3]
    assert [row.data["number"] for row in (await app.items.page(ItemQuery(run_id=run_id), limit=2)).rows] == [1, 2]


@pytest.mark.parametrize(
    ("ends", "resumable"),
    [
        (("released", "its worker was asked to stop"), False),
        (("released", f"paused; {NOT_KEPT}: it ended before it had closed"), True),
        (("failed", "exit code 1"), True),
    ],
)
async def test_a_crawl_that_began_anew_has_the_items_of_its_last_attempt(
    app: App, ends: tuple[str, str], resumable: bool
) -> None:
    run_id = await crawl(app, ends, resumable=resumable)
    assert await numbers(app, ItemQuery(run_id=run_id)) == [3]
    assert await numbers(app, ItemQuery(run_id=run_id, all_attempts=True)) == [1, 2, 3]


async def test_a_crawl_that_went_on_is_not_compared_by_its_last_part(app: App) -> None:
    for _ in range(4):
        await crawl(app, ("failed", "exit code 1"), resumable=True)
    run_id = await crawl(app, ("released", "paused"), resumable=True)
    while await app.comparer.tick():
        pass
    assert [each.drift for each in await app.items.stats(run_id)] == [None, None]
    profiles = await app.db.read(
        lambda tx: [tx.connection.exec_driver_sql(f"SELECT profile FROM run_stats WHERE run_id = {run_id}").all()]
    )
    assert profiles == [[(None,), (None,)]]
