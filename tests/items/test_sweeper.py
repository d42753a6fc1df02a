"""What a project keeps for some days only is removed, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from tests.conftest import SetClock, on_sqlite
from tests.items.yielding import Crawl, crawled
from tests.runs.acting import rows_of
from weft.app import App
from weft.db import schema
from weft.items.model import ItemQuery
from weft.items.retention import RetentionSweeper
from weft.tasks.model import ProjectSettings

DAY = 24 * 3600


async def keep(app: App, days: float | None, project: str = "shop") -> None:
    await app.tasks.configure(project, ProjectSettings(keep_days=days))


async def names(app: App, crawl: Crawl) -> list[Any]:
    return [row.data["name"] async for row in app.items.rows(ItemQuery(run_id=crawl.run_id))]


def teas(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"tea {number}", **more} for number in numbers]


async def test_old_runs_lose_their_items_statistics_and_logs(app: App, clock: SetClock) -> None:
    await keep(app, 10)
    old = await crawled(app, teas(*range(2500)), log=b"it went well\n", at=clock())
    clock.forward(9 * DAY)
    young = await crawled(app, teas(5000), log=b"so did this\n", at=clock())
    assert await app.sweeper.tick() == 0
    clock.forward(2 * DAY)
    assert await app.sweeper.tick() > 2500
    assert (await names(app, old), await names(app, young)) == ([], ["tea 5000"])
    assert [row[0] for row in await rows_of(app, schema.run_stats)] == [young.run_id]
    assert {row[0] for row in await rows_of(app, schema.items)} == {young.run_id}
    assert len(await rows_of(app, schema.records)) == len(await rows_of(app, schema.revisions)) == 1
    assert (await app.runs.log(old.run_id), await app.runs.log(young.run_id)) == (b"", b"so did this\n")
    assert (await app.runs.get(old.run_id)).state == "succeeded"
    assert await app.sweeper.tick() == 0


async def test_things_that_are_still_seen_stay_with_the_looks_that_are_shown(app: App, clock: SetClock) -> None:
    await keep(app, 10)
    await app.datasets.set("shop", "prices", key_fields=["name"])
    for price in (1, 2, 3):
        await crawled(app, teas(1, price=price), at=clock())
        clock.forward(3 * DAY)
    clock.forward(2 * DAY)
    young = await crawled(app, teas(1, price=3), at=clock())
    clock.forward(9 * DAY)
    await app.sweeper.tick()
    assert await names(app, young) == ["tea 1"]
    assert [(row[1], row[2]) for row in await rows_of(app, schema.revisions)] == [(3, '{"name":"tea 1","price":3}')]


async def test_a_run_that_goes_on_keeps_what_it_saw(app: App, clock: SetClock) -> None:
    await keep(app, 10)
    long = await Crawl.begin(app)
    await long.yields(teas(1), at=clock())
    clock.forward(DAY)
    ended = await crawled(app, teas(1, 2), at=clock())
    clock.forward(20 * DAY)
    await app.sweeper.tick()
    assert (await names(app, long), await names(app, ended)) == (["tea 1"], [])
    await long.ends()
    clock.forward(11 * DAY)
    await app.sweeper.tick()
    assert await rows_of(app, schema.records) == await rows_of(app, schema.revisions) == []


@on_sqlite
async def test_a_project_that_says_nothing_keeps_everything(app: App, clock: SetClock) -> None:
    await keep(app, 10, "bank")
    crawl = await crawled(app, teas(1), log=b"hello\n", at=clock())
    clock.forward(10_000 * DAY)
    assert await app.sweeper.tick() == 0
    assert await names(app, crawl) == ["tea 1"]


class Dying:
    """Blobs whose disk is gone."""

    async def delete(self, key: str) -> None:
        raise OSError("the disk is gone")


class Always:
    async def leads(self) -> bool:
        return True


@on_sqlite
async def test_a_sweeper_that_died_is_followed_by_one_that_finishes(
    app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(app, 1)
    crawl = await crawled(app, teas(*range(30)), log=b"hello\n", at=clock())
    clock.forward(3 * DAY)
    [key] = await app.db.read(lambda tx: [row[0] for row in tx.rows(select(schema.runs.c.log_key))])
    monkeypatch.setattr("weft.items.retention.AT_ONCE", 7)
    dying: Any = Dying()
    with pytest.raises(OSError, match="the disk is gone"):
        await RetentionSweeper(app.db, dying, Always(), clock).tick()
    assert await names(app, crawl) == []
    assert len(await rows_of(app, schema.run_stats)) == 1
    await app.sweeper.tick()
    assert await rows_of(app, schema.run_stats) == await rows_of(app, schema.records) == []
    assert await app.blobs.get(key) is None


async def test_a_look_that_is_shown_stays_whatever_the_clock_of_its_worker_said(app: App, clock: SetClock) -> None:
    await keep(app, 10)
    await app.datasets.set("shop", "prices", key_fields=["name"])
    young = await Crawl.begin(app)
    await young.yields(teas(1, price=1), at=1_000_000)
    await young.yields(teas(1, price=2), at=2_000_000)
    await young.ends()
    await app.sweeper.tick()
    found = [row.data["price"] async for row in app.items.rows(ItemQuery(run_id=young.run_id))]
    assert found == [1, 2]
