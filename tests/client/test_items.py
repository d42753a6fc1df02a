"""Items and datasets of a weft elsewhere are the same as those of one that is here."""

from __future__ import annotations

import pytest

from tests.conftest import on_sqlite
from tests.items.scene import AT, start
from weft.app import App
from weft.client import Client
from weft.errors import Invalid, NotFound
from weft.items.datasets import RecordFilter
from weft.items.model import FieldFilter, ItemQuery

pytestmark = on_sqlite


async def test_items_are_the_same_elsewhere(app: App, far: Client) -> None:
    spider = await start(app)
    await spider.send(b"", stats={"downloader/request_count": 2})
    await spider.yields(*({"n": n} for n in range(0, 1200, 2)), at=AT)
    for wanted in (
        ItemQuery(run_id=spider.run_id),
        ItemQuery(run_id=spider.run_id, all_attempts=True, limit=7),
        ItemQuery(project="shop", dataset="quotes", where=(FieldFilter("n", "4", part=True),)),
        ItemQuery(project="shop", dataset="quotes", every=True, limit=501),
    ):
        here = [(row.seq, row.record_id, row.data) async for row in app.items.rows(wanted)]
        assert here
        assert [(row.seq, row.record_id, row.data) async for row in far.items.rows(wanted)] == here
    (stats,) = await far.items.stats(spider.run_id)
    assert (stats.items, stats.stats, stats.dataset) == (600, {"downloader/request_count": 2}, "quotes")


async def test_datasets_are_the_same_elsewhere(app: App, far: Client) -> None:
    made = await far.datasets.set("shop", "quotes", key_fields=["id"], schema={"required": ["id"]})
    assert (made.key_fields, made.schema) == (("id",), {"required": ["id"]})
    one = await start(app)
    await one.yields({"id": 1, "p": 1}, {"id": 2, "p": 1}, {"id": 1, "p": 2}, {"p": 1})
    assert [each.name for each in await far.datasets.all()] == ["quotes"]
    assert await far.datasets.all({"other"}) == []
    assert await far.datasets.counts("shop", "quotes") == await app.datasets.counts("shop", "quotes")
    assert await far.datasets.fields("shop", "quotes") == await app.datasets.fields("shop", "quotes")
    for wanted in (None, RecordFilter(changed_in_run=one.run_id), RecordFilter(where=(FieldFilter("p", "1"),))):
        here = await app.datasets.records("shop", "quotes", wanted, limit=2)
        there = await far.datasets.records("shop", "quotes", wanted, limit=2)
        assert [each.id for each in here.records] == [each.id for each in there.records] != []
        assert here.next == there.next
    record, revisions = await far.datasets.record("shop", "quotes", here.records[0].id)
    assert (record.id, len(revisions)) == (here.records[0].id, here.records[0].revisions)


async def test_what_is_wrong_is_told_as_it_is_here(app: App, far: Client) -> None:
    with pytest.raises(NotFound, match="there is no dataset quotes in project shop; it has none yet"):
        await far.datasets.get("shop", "quotes")
    with pytest.raises(Invalid, match="only type, required"):
        await far.datasets.set("shop", "quotes", schema={"pattern": "a"})
