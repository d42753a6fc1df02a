"""Samples: how far an attempt was at some moments."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.conftest import SetClock, on_sqlite
from tests.items.scene import Spider, lines, start
from tests.runs.acting import rows_of
from weft.app import App
from weft.clock import SECOND
from weft.db import schema
from weft.items import collector
from weft.items.collector import MOST_SAMPLES, Collector, next_sample_at
from weft.items.model import ItemBatch
from weft.tasks.model import ProjectSettings


def told(requests: Any = 7, errors: Any = 1, memory: Any = 50_000_000) -> dict[str, Any]:
    return {"downloader/request_count": requests, "log_count/ERROR": errors, "weft/memory_bytes": memory}


async def samples(app: App, spider: Spider) -> list[tuple[int, ...]]:
    curve = await app.courses.curve(spider.run_id)
    assert curve is not None
    return [(each.items, each.requests, each.errors, each.memory) for each in curve.samples]


async def test_an_attempt_is_sampled_every_five_seconds_at_most(app: App, clock: SetClock) -> None:
    spider = await start(app)
    for second in range(11):
        await spider.send(lines([{"number": second}]), stats=told(requests=second))
        clock.forward(1)
    assert [row[4] for row in await rows_of(app, schema.samples)] == [0, 5, 10]


async def test_the_curve_ends_with_how_far_the_attempt_is_now(app: App, clock: SetClock) -> None:
    spider = await start(app)
    await spider.send(b"", stats=told(requests=1))
    clock.forward(2)
    await spider.send(lines([{"number": 1}, {"number": 2}]), stats=told(requests=9))
    assert await samples(app, spider) == [(0, 1, 1, 50_000_000), (2, 9, 1, 50_000_000)]


async def test_the_curve_knows_when_the_first_item_came(app: App, clock: SetClock) -> None:
    spider = await start(app)
    await spider.send(b"", stats=told())
    assert (await app.courses.curve(spider.run_id)).first_item_at is None  # type: ignore[union-attr]
    await spider.send(lines([{"number": 1}, {"number": 2}], at=clock() + 3 * SECOND))
    assert (await app.courses.curve(spider.run_id)).first_item_at == clock() + 3 * SECOND  # type: ignore[union-attr]


async def test_another_collector_does_not_sample_at_once_what_the_first_has(app: App, clock: SetClock) -> None:
    spider = await start(app)
    await spider.send(b"", stats=told())
    clock.forward(3)
    other = Collector(app.db, clock)
    await other.collect(spider.hand.id, "hand", [ItemBatch(spider.run_id, spider.lease.attempt, stats=told())])
    assert len(await rows_of(app, schema.samples)) == 1


async def test_every_second_sample_of_an_attempt_with_many_is_removed(
    app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MOST_SAMPLES", 4)
    spider = await start(app)
    begun = clock()
    for _ in range(4):
        await spider.send(b"", stats=told())
        clock.forward(60)
    assert [row[2] - begun for row in await rows_of(app, schema.samples)] == [0, 120 * SECOND]


@on_sqlite
async def test_however_long_an_attempt_runs_it_has_no_more_samples_than_a_screen_can_show(
    app: App, clock: SetClock
) -> None:
    spider = await start(app)
    for _ in range(1000):
        await spider.send(b"", stats=told())
        clock.forward(60)
    moments = [row[2] for row in await rows_of(app, schema.samples)]
    assert MOST_SAMPLES / 3 < len(moments) < MOST_SAMPLES
    gaps = [later - sooner for sooner, later in pairwise(moments)]
    assert max(gaps) <= 8 * min(gaps)
    assert moments[-1] >= clock() - 60 * SECOND * 10


@pytest.mark.parametrize("value", [True, -1, "many", None, 2**70, [1], float("1e300")])
@on_sqlite
async def test_statistics_that_are_no_count_are_none(app: App, value: Any) -> None:
    spider = await start(app)
    await spider.send(b"", stats=told(value, value, value))
    assert await samples(app, spider) == [(0, 0, 0, 0)]


async def test_samples_go_with_the_items_of_an_old_run(app: App, clock: SetClock) -> None:
    await app.tasks.configure("shop", ProjectSettings(keep_days=1))
    spider = await start(app)
    await spider.send(lines([{"number": 1}]), stats=told())
    await spider.hand.end(spider.lease)
    clock.forward(2 * 24 * 3600)
    await app.sweeper.tick()
    assert await rows_of(app, schema.samples) == []
    assert await app.courses.curve(spider.run_id) is None


def test_the_next_sample_of_a_young_attempt_is_due_in_five_seconds_and_of_an_old_one_later() -> None:
    assert next_sample_at(1, 0, 0) == 5 * SECOND
    assert next_sample_at(200, 0, 3000 * SECOND) == 3020 * SECOND
