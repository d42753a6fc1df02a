"""Items and records are found page by page, and their counts are what is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import on_sqlite
from tests.items.scene import AT, Spider, start
from weft.app import App
from weft.errors import Invalid, NotFound
from weft.items import item_store
from weft.items import items as items_module
from weft.items.datasets import NEWEST, RecordFilter
from weft.items.items import BEGIN, Cursor
from weft.items.model import FieldFilter, ItemQuery


async def crawl(app: App, *items: dict[str, Any], at: int = AT) -> Spider:
    spider = await start(app)
    await spider.yields(*items, at=at)
    await spider.hand.end(spider.lease)
    return spider


async def test_pages_follow_each_other_without_gap_or_overlap(app: App) -> None:
    first = await crawl(app, *({"n": n} for n in range(7)))
    await crawl(app, *({"n": n} for n in range(5, 12)))
    for wanted, expected in (
        (ItemQuery(run_id=first.run_id), list(range(7))),
        (ItemQuery(project="shop", dataset="quotes"), list(range(12))),
        (ItemQuery(project="shop", dataset="quotes", every=True), [*range(7), *range(5, 12)]),
    ):
        seen, pages = [], 0
        after: Cursor | None = BEGIN
        while after is not None:
            part = await app.items.page(wanted, after, limit=3)
            seen += [row.data["n"] for row in part.rows]
            after, pages = part.next, pages + 1
        assert seen == expected
        assert pages >= len(expected) / 3
        assert [row.data["n"] async for row in app.items.rows(replace(wanted, limit=4))] == expected[:4]


@on_sqlite
async def test_a_long_list_is_read_in_pages(app: App) -> None:
    count = items_module.PAGE * 2 + 5
    spider = await crawl(app, *({"n": n} for n in range(count)))
    seen = [row.seq async for row in app.items.rows(ItemQuery(run_id=spider.run_id))]
    assert seen == list(range(1, count + 1))


async def test_conditions_choose_items(app: App) -> None:
    spider = await crawl(app, {"a": "red tea", "n": 1}, {"a": "tea", "n": 2.5}, {"n": 3, "ok": True})
    for condition, expected in (
        (FieldFilter("a", "tea"), [2]),
        (FieldFilter("a", "tea", part=True), [1, 2]),
        (FieldFilter("n", "2.5"), [2]),
        (FieldFilter("ok", "true"), [3]),
        (FieldFilter("b", ""), []),
    ):
        wanted = ItemQuery(run_id=spider.run_id, where=(condition,))
        assert [row.seq async for row in app.items.rows(wanted)] == expected


async def test_things_are_found_by_when_and_by_which_run(app: App) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    one = await crawl(app, {"id": 1, "price": 1}, {"id": 2, "price": 1})
    two = await crawl(app, {"id": 2, "price": 2}, {"id": 3, "price": 1}, at=AT + 10_000_000)

    async def ids(**wanted: object) -> list[int]:
        page = await app.datasets.records("shop", "quotes", RecordFilter(**wanted))  # type: ignore[arg-type]
        return [record.data["id"] for record in page.records]

    assert await ids() == [3, 2, 1]
    assert await ids(new_in_run=one.run_id) == [2, 1]
    assert await ids(new_in_run=two.run_id) == [3]
    assert await ids(changed_in_run=two.run_id) == [2]
    assert await ids(changed_in_run=one.run_id) == []
    assert await ids(first_seen_after=AT + 5_000_000) == [3]
    assert await ids(last_seen_before=AT + 5_000_000) == [1]
    assert await ids(where=(FieldFilter("price", "1"),)) == [3, 1]
    counts = await app.datasets.counts("shop", "quotes")
    assert (counts.records, counts.items) == (3, 4)


async def test_pages_of_records_follow_each_other(app: App) -> None:
    await crawl(app, *({"n": n} for n in range(7)))
    seen, page = [], await app.datasets.records("shop", "quotes", limit=3)
    seen += [record.data["n"] for record in page.records]
    while page.next is not None:
        page = await app.datasets.records("shop", "quotes", below=page.next, limit=3)
        seen += [record.data["n"] for record in page.records]
    assert seen == [6, 5, 4, 3, 2, 1, 0]


async def test_fields_tell_of_the_newest_records(app: App) -> None:
    await app.datasets.set("shop", "quotes", schema={"required": ["author"]})
    await crawl(app, {"text": "a", "author": "b"}, {"text": ""})
    found = await app.datasets.fields("shop", "quotes")
    assert (found.sampled, found.invalid, found.problems) == (2, 1, ["item has no author"])
    assert found.fields["text"] == {"present": 2, "filled": 1, "types": {"string": 2}}
    assert found.inferred["required"] == ["text"]


@on_sqlite
async def test_a_name_that_is_no_dataset_is_told_with_those_that_are(app: App) -> None:
    await crawl(app, {"n": 1})
    with pytest.raises(NotFound, match="there is no dataset quots in project shop; it has quotes"):
        await app.datasets.get("shop", "quots")
    with pytest.raises(NotFound, match="it has none yet"):
        [row async for row in app.items.rows(ItemQuery(project="empty", dataset="x"))]


@on_sqlite
async def test_a_selection_names_a_run_or_a_dataset(app: App) -> None:
    for wanted in (ItemQuery(), ItemQuery(run_id=1, project="shop", dataset="quotes")):
        with pytest.raises(Invalid, match="either a run or a dataset"):
            await app.items.page(wanted)


@on_sqlite
async def test_a_run_without_items_has_none(app: App) -> None:
    spider = await start(app)
    assert [row async for row in app.items.rows(ItemQuery(run_id=spider.run_id))] == []
    assert await app.items.stats(spider.run_id) == []


@on_sqlite
@pytest.mark.parametrize("key_fields", [["a", "a"], [""], [f"f{n}" for n in range(21)]])
async def test_key_fields_are_names_each_once(app: App, key_fields: list[str]) -> None:
    with pytest.raises(Invalid, match="key_fields"):
        await app.datasets.set("shop", "quotes", key_fields=key_fields)


async def test_other_key_fields_count_from_then_on(app: App) -> None:
    await crawl(app, {"id": 1, "price": 1})
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    await crawl(app, {"id": 1, "price": 2}, {"id": 1, "price": 3})
    seen = (await app.datasets.records("shop", "quotes")).records
    assert [(record.revisions, record.seen) for record in seen] == [(2, 2), (1, 1)]


@on_sqlite
async def test_a_place_in_another_run_shows_nothing_of_that_run(app: App) -> None:
    own, foreign = await crawl(app, {"n": 1}), await start(app, "secrets", project="bank")
    await foreign.yields({"pin": 1234})
    await foreign.hand.end(foreign.lease)
    for wanted in (
        ItemQuery(run_id=own.run_id),
        ItemQuery(run_id=own.run_id, all_attempts=True),
        ItemQuery(project="shop", dataset="quotes", every=True),
    ):
        part = await app.items.page(wanted, (foreign.run_id, foreign.lease.attempt, 0))
        assert [row.run_id for row in part.rows if row.run_id != own.run_id] == []


async def test_of_large_items_a_page_has_fewer_and_none_is_left_out(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_store, "MOST_PAGE_BYTES", 150_000)
    first = await crawl(app, *({"n": n, "text": "é" * (60_000 if n % 2 else 10)} for n in range(9)))
    wanted = [
        ItemQuery(run_id=first.run_id),
        ItemQuery(project="shop", dataset="quotes"),
        ItemQuery(project="shop", dataset="quotes", every=True),
        ItemQuery(project="shop", dataset="quotes", where=(FieldFilter("text", "é", part=True),)),
    ]
    for each in wanted:
        part = await app.items.page(each)
        assert 0 < len(part.rows) < 9
        assert [row.data["n"] async for row in app.items.rows(each)] == list(range(9))
    seen: list[object] = []
    below: int | None = NEWEST
    while below is not None:
        found = await app.datasets.records("shop", "quotes", below=below)
        assert len(found.records) < 9
        seen, below = [*seen, *(record.data["n"] for record in found.records)], found.next
    assert seen == list(range(8, -1, -1))
    assert 0 < (await app.datasets.fields("shop", "quotes")).sampled < 9
    record, revisions = await app.datasets.record("shop", "quotes", found.records[-1].id + 1)
    assert (len(record.data["text"]), [revision.number for revision in revisions]) == (60_000, [1])
