"""A run beside those before it."""

from __future__ import annotations

from typing import Any

from tests.conftest import SetClock
from tests.items.scene import Spider, lines, start
from tests.runs.acting import Hand, submit
from weft.app import App
from weft.spiders.timeline import RunComparison


async def crawled(app: App, clock: SetClock, count: int, *, outcome: str = "succeeded", **fields: Any) -> int:
    """A run that has yielded so many items, with as many requests, in as many seconds."""
    spider = await start(app, **fields)
    stats = {"downloader/request_count": count, "log_count/ERROR": count % 2}
    await spider.send(lines([{"number": each, "name": "x" if each else ""} for each in range(count)]), stats=stats)
    clock.forward(count)
    await spider.hand.end(spider.lease, outcome)
    while await app.comparer.tick():
        pass
    return spider.run_id


async def beside(app: App, run_id: int) -> RunComparison:
    return await app.courses.comparison(await app.runs.get(run_id))


async def test_the_first_run_stands_alone(app: App, clock: SetClock) -> None:
    found = await beside(app, await crawled(app, clock, 4))
    assert (found.previous, found.median, found.count) == (None, None, 0)
    assert (found.run.items, found.run.requests, found.run.seconds, found.run.errors) == (4, 4, 4.0, 0)
    assert found.run.fields == {"number": 1.0, "name": 0.75}


async def test_a_run_stands_beside_the_last_one_and_the_middle_of_ten_that_succeeded(app: App, clock: SetClock) -> None:
    for count in (100, 100, *range(1, 11)):
        await crawled(app, clock, count)
    failed = await crawled(app, clock, 50, outcome="failed")
    found = await beside(app, await crawled(app, clock, 4))
    assert found.previous is not None
    assert (found.previous.run_id, found.previous.state, found.previous.items) == (failed, "failed", 50)
    assert found.median is not None
    assert (found.count, found.median.items, found.median.seconds, found.median.run_id) == (10, 5.5, 5.5, None)
    assert found.previous.fields is None


async def test_runs_of_other_spiders_and_kinds_do_not_count(app: App, clock: SetClock) -> None:
    await crawled(app, clock, 9, spider="others")
    hand = await Hand.join(app)
    for spec in ({"spider": "another"}, {}):
        await submit(app, task="quotes", spec=spec)
        await hand.end(await hand.lease_one())
    await submit(app, task="quotes", kind="shell", spec={"spider": "quotes"})
    await hand.end(await hand.lease_one())
    found = await beside(app, await crawled(app, clock, 4))
    assert (found.previous, found.count) == (None, 0)


async def test_what_has_not_run_or_not_ended_does_not_count(app: App, clock: SetClock) -> None:
    first = await crawled(app, clock, 3)
    await app.runs.cancel(await submit(app, task="quotes", spec={"spider": "quotes"}))
    await start(app)
    found = await beside(app, await crawled(app, clock, 4))
    assert found.previous is not None
    assert found.previous.run_id == first


async def test_a_run_that_yields_nothing_is_compared_by_its_duration(app: App, clock: SetClock) -> None:
    hand = await Hand.join(app)
    for seconds in (2, 4):
        run_id = await submit(app)
        lease = await hand.lease_one()
        clock.forward(seconds)
        await hand.end(lease)
    found = await beside(app, run_id)
    assert found.previous is not None
    assert (found.run.seconds, found.previous.seconds, found.run.items) == (4.0, 2.0, None)


async def test_what_is_unusual_is_told_with_it(app: App, clock: SetClock) -> None:
    for _ in range(3):
        await crawled(app, clock, 10)
    found = await beside(app, await crawled(app, clock, 1))
    assert "items" in [each.what for each in found.marks]


async def test_items_of_attempts_that_one_crawl_went_on_from_count_together(app: App, clock: SetClock) -> None:
    await submit(app, task="quotes", spec={"spider": "quotes", "resumable": True})
    hand = await Hand.join(app)
    first = Spider(hand, await hand.lease_one())
    await first.send(lines([{"number": 1}, {"number": 2}]), stats={"downloader/request_count": 2})
    await hand.end(first.lease, "released")
    second = Spider(hand, await hand.lease_one())
    await second.send(lines([{"number": 3}]), stats={"downloader/request_count": 1})
    await hand.end(second.lease)
    found = await beside(app, first.run_id)
    assert (found.run.items, found.run.requests) == (3, 3)
